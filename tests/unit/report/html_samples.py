"""Made-up runs for the HTML report: with everything, with next to nothing, and with malice."""

from __future__ import annotations

from pathlib import Path

from unit.report.test_understanding import everything, given
from unit.trace import samples
from unit.trace.samples import replace
from unit.trace.traffic_samples import served

from sglang_eagle3_probe.report.html.page import page
from sglang_eagle3_probe.report.verdict import Report, build
from sglang_eagle3_probe.rules.evidence import read_evidence
from sglang_eagle3_probe.trace.record_base import Record

FIGURES = ("wiring", "curve", "anatomy", "timeline", "values", "cost", "speed", "references")
"""Of every run, drawn or told to be missing."""
HOSTILE = (
    "</script></style></title><img src=x onerror=alert(1)>\"'&<svg/onload=alert(2)>\u202e{{7*7}}"
)


def rich(directory: Path) -> Report:
    """Every figure has something to draw."""
    sampled = served(
        requests=8,
        rounds=60,
        batch=4,
        context=3000,
        seed=9,
        chances=(0.6, 0.5, 0.4),
        causes=("ranked_2", "ranked_3_4", "ranked_5_8", "ranked_more", "pruned", "out_of_vocab"),
        temperature=1.0,
        greedy=False,
    )
    broken = samples.slot_stats("decode1_hidden", 12, slots=[samples.slot_window(0.6, nonfinite=3)])
    records = [
        *everything(),
        *sampled.records,
        *samples.values(),
        broken,
        samples.probe_cost(),
        samples.static_findings(samples.static_finding(), samples.static_unknown("E3P327")),
    ]
    samples.write(directory, records, head=samples.header(level="stats"))
    return build(read_evidence(directory), given())


def miswired(directory: Path) -> Report:
    """Level ``wiring``, an older trace: no values, no refusals, no times."""
    samples.write(directory, samples.owners_case())
    return build(read_evidence(directory))


def bare(directory: Path) -> Report:
    """A server that started and was never asked anything, without a draft."""
    samples.write(directory, [samples.seams()])
    return build(read_evidence(directory))


def large(directory: Path) -> Report:
    """A 61-layer target, eight slots out of order, seven steps, long names, wide states."""
    output_ids = [-1, 58, 2, 30, 57, 12, 45, 21]
    name = "KimiK25ForConditionalGenerationWithAVeryLongNameIndeedAndMore"
    ids = samples.layer_ids(
        output_ids,
        model_class=name,
        num_layers=61,
        trained_output_ids=[-1, 2, 12, 21, 30, 45, 57, 58],
        draft_num_aux=8,
    )
    width = 7168
    made = served(requests=16, rounds=40, chances=(0.9,) * 7, causes=("ranked_2", "unknown"))
    records: list[Record] = replace(
        samples.clean(0),
        ids,
        samples.arguments(target_architecture=name, draft_architecture=name),
        samples.aux_states(count=8, widths=[width] * 8),
        samples.draft_forward(
            "extend_prefill",
            model_class=name,
            width_in=8 * width,
            fc_in_features=8 * width,
            fc_out_features=width,
            fc="bypassed",
        ),
        samples.vocab_map(size=128_256, target_vocab_size=163_840, in_force=False),
    )
    samples.write(directory, [*records, *made.records])
    return build(read_evidence(directory))


def hostile(directory: Path) -> Report:
    """Every text that a stranger's config or path can bring in."""
    ids = samples.layer_ids(
        [-1, 2, 5],
        model_class=HOSTILE,
        unit_why=HOSTILE,
        trained_output_ids=[2, 5, 8],
        trained_source=HOSTILE,
        stock_error=HOSTILE,
        ignored_keys={HOSTILE: [1]},
        slots=samples.slots([-1, 2, 5], HOSTILE),
    )
    book = samples.arguments(
        target_path=HOSTILE,
        draft_path=HOSTILE,
        draft_architecture=HOSTILE,
        asked={HOSTILE: HOSTILE, "attention_backend": HOSTILE},
    )
    bad = samples.static_finding(message=HOSTILE, title=HOSTILE, fix=f"`{HOSTILE}`")
    head = samples.header(
        sglang_version=HOSTILE, versions={HOSTILE: HOSTILE}, settings={HOSTILE: HOSTILE}
    )
    records = [
        *replace(samples.clean_with_values(), ids, book),
        samples.draft_forward("decode", model_class=HOSTILE),
        samples.weights(not_taken=[HOSTILE]),
        samples.slot_stats(HOSTILE),
        samples.static_findings(bad, notes=[HOSTILE]),
    ]
    samples.write(directory, records, head=head)
    return build(read_evidence(directory))


def page_of(*named: tuple[str, Report]) -> str:
    """The document."""
    return page(named)
