"""Level ``stats`` on the rig: the torch twin of the device taps, through the whole path.

Under CUDA graphs the same taps are kernels in the graph; scripts/gpu_check proves that on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, cli, only, probed_pair, tokens

from sglang_eagle3_probe.device import reference
from sglang_eagle3_probe.trace.records import Fault, SlotStats, StatsCoverage

HIDDEN = 192


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    with probed_pair(
        models,
        tmp_path_factory.mktemp("stats"),
        variables={"level": "stats", "stats_rows": "1"},
        extra_args=["--enable-return-hidden-states"],
    ) as run:
        yield run


@pytest.fixture(scope="module")
def answers(served: Probed, prompts: list[list[int]]) -> Any:
    return served.server.generate(prompts, max_new_tokens=NEW_TOKENS)


@pytest.fixture(scope="module")
def stats(served: Probed, answers: Any) -> list[SlotStats]:
    trace = served.trace(lambda t: sum(s.site == "aux_verify" for s in only(t, SlotStats)) >= 3)
    return list(only(trace, SlotStats))


def test_tokens_equal_plain_decoding(answers: Any, plain: list[tuple[int, ...]]) -> None:
    assert tokens(answers) == plain


def test_every_forward_kind_is_tapped(served: Probed, stats: list[SlotStats]) -> None:
    coverage = only(served.trace(), StatsCoverage)[-1]
    assert set(coverage.tapped) == {
        "aux_prefill",
        "aux_verify",
        "target_embedding",
        *(
            f"extend_{kind}_{what}"
            for kind in ("prefill", "verify")
            for what in ("in", "fc", "hidden")
        ),
        *(f"decode{step}_{what}" for step in (0, 1) for what in ("in", "hidden")),
    }
    assert set(coverage.tapped.values()) == {"eager"}
    assert coverage.skipped == {}
    assert only(served.trace(), Fault) == []


def test_the_first_slot_is_proved_to_be_the_embedding(stats: list[SlotStats]) -> None:
    for record in stats:
        if record.site in ("aux_verify", "aux_prefill"):
            assert record.boundaries == [0, 3, 6]
            shares = [slot.equals_embedding for slot in record.slots]
            assert shares == [1.0, 0.0, 0.0]


def test_the_draft_reads_what_the_target_hands_out(stats: list[SlotStats]) -> None:
    checked = [s.found_in_target for s in stats if s.found_in_target is not None]
    assert len(checked) >= 3
    assert set(checked) == {1.0}


def test_values_are_those_of_the_states_that_sglang_returns(
    served: Probed, prompts: list[list[int]]
) -> None:
    import torch

    served.server.flush_cache()
    [answer] = served.server.generate([prompts[0]], max_new_tokens=48, return_hidden_states=True)
    # Later rounds push these out of the ring.
    served.server.generate([prompts[1]], max_new_tokens=96)
    served.server.generate([prompts[2]], max_new_tokens=96)
    rows = torch.cat(
        [torch.tensor(x).reshape(-1, 3 * HIDDEN) for x in answer.meta_info["hidden_states"][1:]]
    )
    pieces = rows.view(len(rows), 3, HIDDEN)
    bits = pieces.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    prints = reference.fingerprint(bits, reference.MIX_A)

    def by_print(trace: Any) -> dict[tuple[int, int], list[float]]:
        return {
            (int(row[7]), int(row[2])): row
            for s in only(trace, SlotStats)
            if s.site == "aux_verify"
            for row in s.full_rows
        }

    wanted = {(int(prints[r, s]), s): pieces[r, s] for r in range(len(rows)) for s in range(3)}
    trace = served.trace(lambda t: wanted.keys() <= by_print(t).keys())
    found = by_print(trace)
    for key, values in wanted.items():
        assert found[key][3] == pytest.approx(float(values.mean()), abs=1e-5)
        assert found[key][4] == pytest.approx(float(values.pow(2).mean().sqrt()), rel=1e-5)
        assert found[key][5] == pytest.approx(float(values.abs().max()), rel=1e-6)
    assert len({row[4] for (_, slot), row in found.items() if slot == 2}) > 20


def test_rounds_are_joined_to_requests(stats: list[SlotStats]) -> None:
    joined = [s for s in stats if s.site == "aux_verify" and s.joined]
    assert joined
    assert all(s.lost_ticks == 0 for s in stats)
    assert all(len(s.sample_rids) >= 1 for s in joined)


def test_the_report_shows_it(served: Probed, stats: list[SlotStats]) -> None:
    shown = cli("report", str(served.traces))
    assert shown.returncode == 0, shown.stdout
    assert "proven: equals the embedding" in " ".join(shown.stdout.split())


def test_stats_taps_that_raise_change_no_token(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    sites = {"stats_target", "stats_draft", "stats_rounds"}
    with probed_pair(
        models, tmp_path, variables={"level": "stats", "fail_site": ",".join(sites)}
    ) as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        run.trace(lambda t: {f.site for f in only(t, Fault)} == sites)
        assert only(run.trace(), SlotStats) == []


def test_two_ranks_agree(models: Models, prompts: list[list[int]], tmp_path: Path) -> None:
    with probed_pair(
        models, tmp_path, tp=2, variables={"level": "stats", "stats_rows": "1"}
    ) as run:
        run.server.generate(prompts, max_new_tokens=NEW_TOKENS)

        def enough(trace: Any) -> bool:
            return len(trace.processes) == 2 and all(
                sum(s.site == "aux_verify" for s in p.of(SlotStats)) >= 3 for p in trace.processes
            )

        first, second = run.trace(enough).processes
    digests = [
        {(s.site, t): d for s in p.of(SlotStats) for t, d in s.tick_digests.items()}
        for p in (first, second)
    ]
    both = digests[0].keys() & digests[1].keys()
    assert len({site for site, _ in both}) >= 10
    assert len(both) >= 40
    assert {key for key in both if digests[0][key] != digests[1][key]} == set()
