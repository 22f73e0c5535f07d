"""Refusals on the rig, against a witness inside the server that shares nothing with the probe."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, only, probed_pair, rid_digest, tokens
from rig.server import SITE, Generation

from sglang_eagle3_probe.trace.acceptance_records import Refusals
from sglang_eagle3_probe.trace.records import Fault

WITNESS = Path(__file__).with_name("witness")

Key = tuple[str, int]
Seen = tuple[int, int | None, bool | None, bool]


def watched(witness: Path) -> dict[str, str]:
    """Variables of a server with the witness in it."""
    path = [str(SITE), str(WITNESS), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        "REFUSAL_WITNESS": str(witness),
    }


def witnessed(file: Path, answers: list[Generation]) -> dict[Key, Seen]:
    """What the witness saw of these answers, by rid digest and round."""
    rids = {answer.meta_info["id"] for answer in answers}
    found: dict[Key, Seen] = {}
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["rid"] in rids:
            digest = rid_digest(line["rid"])
            key = (digest, int(line["round"]))
            its = [line[name] for name in ("position", "rank", "matches", "unexpanded")]
            found[key] = (its[0], its[1], its[2], its[3])
    return found


def recorded(trace: Any) -> dict[Key, Seen]:
    """What the probe recorded, by rid digest and round."""
    found: dict[Key, Seen] = {}
    for record in trace.processes[0].of(Refusals):
        columns = (
            record.rids,
            record.rounds,
            record.positions,
            record.ranks,
            record.target_argmax_matches,
            record.unexpanded,
        )
        for rid, number, *seen in zip(*columns, strict=True):
            assert (rid, number) not in found
            found[rid, number] = tuple(seen)
    return found


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("witness") / "refusals.jsonl"


@pytest.fixture(scope="module")
def served(
    models: Models, witness: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Probed]:
    with probed_pair(
        models,
        tmp_path_factory.mktemp("refusals"),
        variables={"level": "stats", "refusal_every": "1"},
        extra_env=watched(witness),
        extra_args=["--chunked-prefill-size", "64"],
    ) as run:
        yield run


def settled(run: Probed, prompts: list[list[int]], keys: set[Key]) -> dict[Key, Seen]:
    """The recorded refusals, once they hold the keys; more rounds bring the ring to the host."""
    for _ in range(3):
        run.server.generate(prompts[:1], max_new_tokens=2 * NEW_TOKENS, ignore_eos=True)
    return recorded(run.trace(lambda t: keys <= recorded(t).keys()))


def test_ranks_equal_the_witness(
    served: Probed, witness: Path, prompts: list[list[int]], plain: list[tuple[int, ...]]
) -> None:
    answers = served.server.generate(prompts, max_new_tokens=NEW_TOKENS)
    assert tokens(answers) == plain
    expected = witnessed(witness, answers)
    found = settled(served, prompts, set(expected))
    assert {key: found[key] for key in expected} == expected
    ranks = [seen[1] for seen in expected.values()]
    assert {seen[0] for seen in expected.values()} == {0, 1, 2}
    assert ranks.count(None) > 0
    assert ranks.count(2) > 0
    # Greedy verification refuses nothing that is the argmax.
    assert {seen[2] for seen in expected.values()} == {False}
    assert 1 not in ranks


def test_sampling_refuses_what_greedy_would_take(
    served: Probed, witness: Path, prompts: list[list[int]]
) -> None:
    answers = served.server.generate(prompts, max_new_tokens=NEW_TOKENS, temperature=1.0)
    expected = witnessed(witness, answers)
    found = settled(served, prompts, set(expected))
    assert {key: found[key] for key in expected} == expected
    assert {seen[2] for seen in expected.values()} == {True, False}


def test_nothing_of_ours_failed(served: Probed) -> None:
    assert only(served.trace(), Fault) == []
    assert any("refusals: draft logits of" in line for line in served.log_lines)


def flags(trace: Any) -> dict[Key, bool]:
    """Which rounds were looked at, by rid digest and round."""
    found: dict[Key, bool] = {}
    for record in trace.processes[0].verify_rounds():
        looked = record.looked_at or [True] * len(record.rids)
        for rid, number, was in zip(record.rids, record.rounds, looked, strict=True):
            found[rid, number] = was
    return found


def looked_at(run: Probed, seen: dict[Key, Seen]) -> dict[Key, Seen]:
    """Of what the witness saw, the rounds that the probe looked at: about every other one."""
    known = flags(run.trace(lambda t: seen.keys() <= flags(t).keys()))
    mine = {key: its for key, its in seen.items() if known[key]}
    assert 0.3 * len(seen) < len(mine) < 0.7 * len(seen)
    return mine


def test_ranks_in_trees_equal_the_witness(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    witness = tmp_path / "refusals.jsonl"
    with probed_pair(
        models,
        tmp_path,
        topk=2,
        num_draft_tokens=10,
        variables={"level": "stats", "refusal_every": "2"},
        extra_env=watched(witness),
    ) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        expected = looked_at(run, witnessed(witness, answers))
        found = settled(run, prompts, set(expected))
        assert {key: found[key] for key in expected} == expected
        sampled = run.server.generate(prompts, max_new_tokens=NEW_TOKENS, temperature=1.0)
        sampled_expected = looked_at(run, witnessed(witness, sampled))
        found = settled(run, prompts, set(sampled_expected))
        assert {key: found[key] for key in sampled_expected} == sampled_expected
        assert found.keys() <= {key for key, was in flags(run.trace()).items() if was}
        assert only(run.trace(), Fault) == []
    # Greedy verification refuses nothing that is the argmax.
    assert {seen[2] for seen in expected.values()} == {False}
    both = [*expected.values(), *sampled_expected.values()]
    for position in range(3):
        assert len({rank for at, rank, *_ in both if at == position and rank is not None}) > 1
    assert {position for position, *_, unexpanded in both if unexpanded} == {2}


def test_faults_change_no_token(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    sites = {"refusal_logits", "refusals", "phase_times", "request_end", "draft_vocabulary"}
    with probed_pair(
        models,
        tmp_path,
        variables={"level": "stats", "refusal_every": "1", "fail_site": ",".join(sites)},
    ) as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        run.trace(lambda t: {f.site for f in only(t, Fault)} == sites)
        assert only(run.trace(), Refusals) == []
