"""The static rules on files as a server has them: overrides, unreadable files, odd values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from unit.checkpoint import checkpoint_files as files

from sglang_eagle3_probe.checkpoint.live import LiveFacts
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.rules.base import Finding, Seen, Unknown
from sglang_eagle3_probe.rules.static.at_load import Judged, describe, judge_files
from sglang_eagle3_probe.trace.reader import decode_line
from sglang_eagle3_probe.trace.static_records import StaticFindings

EAGLE3 = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    target = files.target(tmp_path / "target")
    draft = files.draft(tmp_path / "draft")
    return str(target), str(draft)


def judge(pair: tuple[str, str], **changes: Any) -> Judged:
    given: dict[str, Any] = {
        "release": "0.5.23",
        "arguments": EAGLE3,
        "asked": None,
        "overrides": "{}",
        "trained_output_ids": None,
        "live": LiveFacts(),
    }
    target, draft = pair
    return judge_files(target=target, draft=draft, **{**given, **changes})


def codes(judged: Judged) -> set[str]:
    return {r.code for r in judged.results}


def test_overrides_reach_the_configs_judged(pair: tuple[str, str]) -> None:
    assert "E3P112" not in codes(judge(pair))
    assert "E3P112" in codes(judge(pair, overrides='{"num_hidden_layers": 20}'))
    hidden = '{"eagle_config": {"use_aux_hidden_state": false}}'
    assert "E3P212" in codes(judge(pair, overrides=hidden))


@pytest.mark.parametrize("text", ["{", "[]", "null", "3", "", "{}"])
def test_overrides_that_say_nothing_are_no_reason_to_stop(pair: tuple[str, str], text: str) -> None:
    judged = judge(pair, overrides=text)
    assert judged.rules > 50
    assert codes(judge(pair)) <= codes(judged)


def test_the_users_word_on_training_goes_before_the_notes(pair: tuple[str, str]) -> None:
    (Path(pair[1]) / "trainer_accuracy.json").write_text('{"trained_on_output_ids": [1, 15, 28]}')
    assert "E3P124" not in codes(judge(pair))
    assert "E3P124" in codes(judge(pair, trained_output_ids=(2, 16, 29)))


@pytest.mark.parametrize("side", [0, 1])
def test_files_that_cannot_be_read_are_one_note(pair: tuple[str, str], side: int) -> None:
    places = list(pair)
    places[side] = "no/such-model"
    judged = judge((places[0], places[1]))
    assert (judged.rules, judged.results) == (0, ())
    [note] = judged.notes
    assert "no/such-model" in note
    assert "nothing is ever downloaded" in note


def test_odd_evidence_survives_the_trace() -> None:
    odd: list[Any] = [
        float("nan"),
        float("inf"),
        10**30,
        (1, 2),
        {"a": {1, 2}},
        list(range(1000)),
        "x" * 5000,
        object(),
        None,
        True,
    ]
    finding = Finding(
        "E3P999", "error", "t", "m", tuple(Seen("v", v, "w") for v in odd), "f", source="files"
    )
    judged = Judged(
        "0.5.23",
        {"x": float("nan"), "y": 2**70},
        {"z": ("a",)},
        (finding, Unknown("E3P998", "t", "m", "d")),
        2,
        ("note",),
    )
    record = describe(judged, "t", "d", 0.12345)
    line = msgspec.json.encode(record)
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert len(line) < 8000
    again = decode_line(line)
    assert isinstance(again, StaticFindings)
    values = [s.value for s in again.findings[0].evidence]
    assert values[:4] == ["nan", "inf", str(10**30), [1, 2]]
    assert len(values[5]) == 65
    assert values[8:] == [None, True]
    assert again.unknown[0].decide == "d"


def test_names_in_a_config_cannot_steer_a_terminal_or_break_a_line(pair: tuple[str, str]) -> None:
    files.draft(Path(pair[1]), architectures=["Eagle3\x1b[2J\nINFO: all is well"])
    record = describe(judge(pair), "t", "d", 0.0)
    texts = [t for f in record.findings for t in (f.message, f.fix, str(f.evidence[0].value))]
    assert any("Eagle3?[2J INFO" in text for text in texts)
    assert all(text.isprintable() for text in texts)


def test_no_tensor_but_the_maps_is_read(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang_eagle3_probe.checkpoint import reader

    names: list[int] = []
    whole = reader.read_integers

    def counting(path: Path, entry: Any) -> Any:
        names.append(entry.info.shape[0])
        return whole(path, entry)

    monkeypatch.setattr(reader, "read_integers", counting)
    judge(pair)
    assert sorted(names) == [files.DRAFT_VOCAB, files.TARGET_VOCAB]
    assert read_checkpoint(pair[1]).d2t is not None
