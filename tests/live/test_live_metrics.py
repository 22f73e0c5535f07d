"""The probe's metrics on SGLang's own /metrics, against the trace and against SGLang's answers."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, probed_pair, tokens
from prometheus_client.parser import text_string_to_metric_families

from sglang_eagle3_probe.analysis.traffic_counts import TrafficCounts
from sglang_eagle3_probe.taps.metric_table import METRICS, PREFIX
from sglang_eagle3_probe.trace.acceptance_records import RequestEnd
from sglang_eagle3_probe.trace.records import Fault
from sglang_eagle3_probe.trace.traffic import read_traffic

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from dashboard_checks.queries import Prometheus, queries

STEPS = 3
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "eagle3-probe.json"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(run: Probed) -> Samples:
    """(name, sorted labels) -> value."""
    with urllib.request.urlopen(f"{run.server.url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples: Samples, name: str, **labels: object) -> float:
    """Sum over the series with these labels."""
    wanted = {(key, str(value)) for key, value in labels.items()}
    return sum(
        v for (n, found), v in samples.items() if n == PREFIX + name and wanted <= set(found)
    )


def ranks_of(samples: Samples, name: str) -> set[str]:
    return {dict(found)["tp_rank"] for (n, found) in samples if n == PREFIX + name}


def settled(run: Probed, done: Callable[[Samples], bool], within_s: float = 60) -> Samples:
    """Scraped until it satisfies a condition, then once more a pass later."""
    deadline = time.monotonic() + within_s
    while not done(scrape(run)):
        assert time.monotonic() < deadline, {
            k: v for k, v in scrape(run).items() if k[0].startswith(PREFIX)
        }
        time.sleep(0.5)
    time.sleep(1.5)
    return scrape(run)


def counted(answers: list[Any], name: str) -> int:
    return sum(int(a.meta_info[name]) for a in answers)


def refused(answers: list[Any]) -> int:
    """Rounds in which not all drafts were right."""
    rounds = [r for a in answers for r in enumerate(a.meta_info["spec_correct_drafts_histogram"])]
    return sum(count for correct, count in rounds if correct < STEPS)


def matches_answers_and_trace(run: Probed, samples: Samples, answers: list[Any]) -> None:
    """Every traffic counter equals what SGLang reports per request, and what the trace holds."""
    trace = run.rounds_match(answers)
    rounds = list(trace.processes[0].verify_rounds())
    histogram = [
        sum(
            a.meta_info["spec_correct_drafts_histogram"][c]
            for a in answers
            if c < len(a.meta_info["spec_correct_drafts_histogram"])
        )
        for c in range(STEPS + 1)
    ]
    assert total(samples, "verify_rounds_total") == counted(answers, "spec_verify_ct")
    assert total(samples, "verify_batches_total") == len(rounds)
    assert total(samples, "correct_drafts_total") == counted(answers, "spec_num_correct_drafts")
    for position in range(STEPS):
        proposed = total(samples, "proposed_drafts_total", position=position)
        assert proposed == sum(histogram)
        correct = total(samples, "correct_drafts_total", position=position)
        assert correct == sum(histogram[position + 1 :])
        assert correct == sum(1 for r in rounds for c in r.correct_drafts if c > position)
        assert total(samples, "refused_drafts_total", position=position) == histogram[position]
    assert total(samples, "proposed_drafts_total", position=STEPS) == 0
    assert total(samples, "uncounted_rows_total") == sum(len(r.not_counted) for r in rounds)
    # Cause by cause what the report counts from the same trace.
    reported = TrafficCounts()
    reported.add_all(read_traffic(trace.processes[0].files))
    assert reported.refusals.counts.total() == refused(answers)
    for (position, cause), count in reported.refusals.counts.items():
        assert total(samples, "refused_drafts_total", position=position, cause=cause) == count


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    with probed_pair(
        models,
        tmp_path_factory.mktemp("metrics"),
        extra_args=["--enable-metrics", "--served-model-name", "fixture"],
        variables={"fail_site": "draft_forward"},
    ) as run:
        yield run


@pytest.fixture(scope="module")
def answers(served: Probed, prompts: list[list[int]]) -> Any:
    return served.server.generate(prompts, max_new_tokens=NEW_TOKENS)


def test_counters_equal_answers_and_trace(
    served: Probed, answers: Any, plain: list[tuple[int, ...]]
) -> None:
    assert tokens(answers) == plain
    samples = settled(served, lambda s: total(s, "refused_drafts_total") >= refused(answers))
    matches_answers_and_trace(served, samples, answers)
    ended = [r for p in served.trace().processes for r in p.of(RequestEnd)]
    assert total(samples, "verify_rounds_total") == sum(r.verify_rounds for r in ended)  # type: ignore[attr-defined]
    # A reader of SGLang's own counter sees the same; it has it from 0.5.13 on.
    theirs = sum(v for (n, _), v in samples.items() if n == "sglang:spec_verify_calls_total")
    assert theirs == total(samples, "verify_rounds_total")


def test_labels_are_sglangs_own(served: Probed, answers: Any) -> None:
    samples = scrape(served)
    theirs = next(dict(f) for (n, f) in samples if n == "sglang:spec_accept_length")
    mine = next(dict(f) for (n, f) in samples if n == PREFIX + "verify_rounds_total")
    assert mine == theirs
    assert mine["model_name"] == "fixture"
    [info] = [dict(f) for (n, f) in samples if n == PREFIX + "info"]
    assert (info["level"], info["output_ids"]) == ("wiring", "-1,2,5")


def test_faults_and_disabled_taps(served: Probed, answers: Any) -> None:
    samples = settled(served, lambda s: total(s, "disabled_taps") == 1)
    faults = list(served.trace().processes[0].of(Fault))
    assert total(samples, "faults_total", tap="draft_forward") == len(faults) == 3
    assert total(samples, "dropped_records_total") == 0
    assert total(samples, "trace_write_errors_total") == 0
    assert total(samples, "scheduler_seconds_total") >= 0


def test_every_metric_of_the_dashboard_is_there(served: Probed, answers: Any) -> None:
    import re

    samples = settled(served, lambda s: total(s, "refused_drafts_total") >= refused(answers))
    names = {name for name, _ in samples}
    text = DASHBOARD.read_text(encoding="utf-8")
    queried = set()
    for panel in json.loads(text)["panels"]:
        for target in panel.get("targets", []):
            queried |= set(re.findall(r"sglang[:_]\w+", target["expr"]))
    assert len(queried) > 8
    # A series with labels begins with its first amount; a healthy server may lose nothing.
    not_yet = {PREFIX + "dropped_records_total", PREFIX + "missed_total"}
    # A Prometheus may see SGLang's names with an underscore for the colon.
    assert queried - names - {n.replace(":", "_") for n in names} <= not_yet
    assert {n for n in names if n.startswith(PREFIX) and not n.endswith("_created")} >= {
        m.name for m in METRICS
    } - not_yet


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus here (apt-get install prometheus)"
)
def test_prometheus_answers_every_query_of_the_dashboard(
    served: Probed, answers: Any, prompts: list[list[int]]
) -> None:
    served.server.flush_cache()
    with Prometheus(served.server.url.removeprefix("http://")) as prometheus:
        # Rates need a series to grow while it is scraped.
        for _ in range(3):
            served.server.generate(prompts[:3], max_new_tokens=NEW_TOKENS)
            time.sleep(3)
        time.sleep(3)
        counts = {query: prometheus.series(query) for query in queries()}
        samples = scrape(served)
        rounds = prometheus.now(f"sum({PREFIX}verify_rounds_total)")
    without = {query.expr for query, count in counts.items() if not count}
    # A series with labels begins with its first amount; a healthy server may lose nothing.
    assert without <= {e for e in without if "dropped_records" in e or "missed_total" in e}
    assert len(counts) > 25
    assert rounds == [total(samples, "verify_rounds_total")]


@pytest.mark.parametrize("every_rank", [False, True])
def test_two_ranks_are_not_counted_twice(
    models: Models, prompts: list[list[int]], every_rank: bool, tmp_path: Path
) -> None:
    arguments = ["--enable-metrics"]
    if every_rank:
        arguments.append("--enable-metrics-for-all-schedulers")
    with probed_pair(
        models,
        tmp_path,
        tp=2,
        extra_args=arguments,
        variables={"level": "stats", "refusal_every": "1"},
    ) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=48)
        ranks = 2 if every_rank else 1
        samples = settled(
            run, lambda s: total(s, "refused_drafts_total") >= ranks * refused(answers)
        )
    one = {key: v for key, v in samples.items() if dict(key[1]).get("tp_rank") == "0"}
    matches_answers_and_trace(run, one, answers)
    assert total(one, "refused_drafts_total", cause="unknown") < refused(answers) / 2
    everywhere = {"0", "1"}
    assert ranks_of(samples, "verify_rounds_total") == (everywhere if every_rank else {"0"})
    assert total(samples, "verify_rounds_total") == ranks * counted(answers, "spec_verify_ct")
    # What concerns a process's own trace comes from each of them.
    assert ranks_of(samples, "disabled_taps") == everywhere


def test_an_exporter_that_fails_is_not_felt(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(
        models, tmp_path, extra_args=["--enable-metrics"], variables={"fail_site": "metrics_export"}
    ) as run:
        answers = run.server.generate(prompts[:2], max_new_tokens=16)
        assert tokens(answers) == [t[:16] for t in plain[:2]]
        trace = run.trace(
            lambda t: any(
                f.site == "metrics_export" and f.disabled  # type: ignore[attr-defined]
                for f in t.processes[0].of(Fault)
            )
        )
        samples = scrape(run)
    assert not [n for n, _ in samples if n.startswith(PREFIX)]
    assert [n for n, _ in samples if n.startswith("sglang:")]
    assert trace.processes[0].verify_rounds()
