"""Each rule fires on a trace made to trip it and stays quiet on a clean one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.rules.test_acceptance_rules import CODES as ACCEPTANCE_RULES
from unit.trace import samples
from unit.trace.samples import replace

from sglang_eagle3_probe.rules import registry
from sglang_eagle3_probe.rules.base import Finding, Result, Rule, Unknown
from sglang_eagle3_probe.rules.evidence import collect
from sglang_eagle3_probe.rules.judging import exit_code
from sglang_eagle3_probe.rules.registry import RULES, find, judge
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Fault, LayerIds, Losses, SeamState, SlotStats


def results(directory: Path, records: list[Record], **how: Any) -> list[Result]:
    samples.write(directory, records, **how)
    return judge(collect(read(directory)))


def findings(found: list[Result], code: str) -> list[Finding]:
    return [r for r in found if isinstance(r, Finding) and r.code == code]


def one(directory: Path, code: str, records: list[Record], **how: Any) -> Finding:
    (finding,) = findings(results(directory, records, **how), code)
    assert finding.evidence
    assert finding.fix
    assert not finding.message.endswith(".")
    return finding


def with_ids(served: list[int], **changes: Any) -> list[Record]:
    return replace(samples.clean(), samples.layer_ids(served, **changes))


def with_weights(**changes: Any) -> list[Record]:
    return replace(samples.clean(), samples.weights(**changes))


def with_map(**changes: Any) -> list[Record]:
    return replace(samples.clean(), samples.vocab_map(**changes))


def with_arguments(**force: Any) -> list[Record]:
    standard = samples.arguments().in_force
    return replace(samples.clean(), samples.arguments(in_force={**standard, **force}))


def fault(**changes: Any) -> Fault:
    values: dict[str, Any] = {"error": "KeyError: 1", "traceback": "", "count": 3, "disabled": True}
    return Fault(site="aux_states", **{**values, **changes})


def with_aux_slot(place: int, **changes: Any) -> list[Record]:
    """Values in which one slot of ``aux_verify`` is changed in every window."""
    records = samples.clean_with_values()
    for record in records:
        if isinstance(record, SlotStats) and record.site == "aux_verify":
            for name, value in changes.items():
                setattr(record.slots[place], name, value)
    return records


LOST_AUX = replace(samples.clean(), samples.aux_states(count=None, widths=[], packed=False))
BYPASSED = replace(
    samples.clean(),
    samples.draft_forward("extend_verify", width_in=samples.WIDTH, fc="bypassed"),
)
FIRING: dict[str, list[Record]] = {
    "E3P101": samples.owners_case(),
    "E3P102": with_ids(
        [1, 4, 6],
        configured=None,
        configured_at="default",
        unit="default",
        trained_output_ids=None,
        ignored_keys={"aux_hidden_states_layer_ids": [-1, 2, 5]},
    ),
    "E3P103": with_ids([2, 5, 8], configured=[5, 2, 8], trained_output_ids=[5, 2, 8]),
    "E3P104": with_ids([2, 5], configured=[2, 5, 5], trained_output_ids=None),
    "E3P105": with_ids([2, 5, 7], configured=[2, 5, 7], trained_output_ids=None),
    "E3P201": BYPASSED,
    "E3P202": with_arguments(speculative_algorithm="EAGLE"),
    "E3P203": LOST_AUX,
    "E3P301": with_weights(not_taken=["layers.0.self_attn.q_norm.weight"]),
    "E3P302": with_weights(not_filled=["model.fc_norm.0.weight"]),
    "E3P401": with_map(present=False, in_force=False, size=None),
    "E3P402": with_map(strictly_increasing=False, duplicates=3),
    "E3P403": with_weights(own_embed_dropped=True),
    "E3P601": [*samples.clean(0), *samples.rounds(400, (0.1, 0.1, 0.1))],
    "E3P602": [*samples.clean(0), *samples.rounds(400, (0.7, 0.1, 0.1))],
    "E3P902": [*samples.clean(), fault()],
    "E3P903": replace(
        samples.clean(),
        samples.seams(
            seams=[SeamState(name="x", target="sglang.X.y", state="failed", why="no such name")]
        ),
    ),
    "E3P904": replace(samples.clean(), samples.seams(release_proved=False)),
    "E3P905": [samples.seams(), samples.arguments()],
    "E3P701": with_aux_slot(1, nonfinite=7),
    "E3P702": with_aux_slot(2, rms_mean=0.0, rms_min=0.0, rms_max=0.0, absmax=0.0),
    "E3P703": samples.clean_with_values(only="aux_verify", same_slots=[[1, 2]]),
    "E3P704": with_aux_slot(0, equals_embedding=0.0),
    "E3P706": samples.clean_with_values(only="extend_verify_in", found_in_target=0.3),
    "E3P906": [
        *samples.clean_with_values(),
        samples.stats_coverage(skipped={"decode2_in": {"not_compiled": 4}}),
    ],
}
ELSEWHERE = {"E3P404", "E3P705", "E3P901", *ACCEPTANCE_RULES}
"""Fired by tests of their own, below and in files beside this one: they take two ranks, losses, or
traffic of a certain kind."""


def test_every_rule_has_a_firing_trace() -> None:
    assert FIRING.keys() | ELSEWHERE == {rule.code for rule in RULES}
    assert len({rule.code for rule in RULES}) == len(RULES)


def test_clean_trace_is_quiet(tmp_path: Path) -> None:
    found = results(tmp_path, samples.clean())
    assert found == []
    assert exit_code(found) == 0


@pytest.mark.parametrize("code", sorted(FIRING))
def test_rule_fires(tmp_path: Path, code: str) -> None:
    found = findings(results(tmp_path, FIRING[code]), code)
    assert found
    assert all(f.evidence and f.fix for f in found)


def test_owners_case_is_named_in_the_owners_words(tmp_path: Path) -> None:
    finding = one(tmp_path, "E3P101", samples.owners_case())
    assert finding.severity == "error"
    assert "trained on [-1, 2, 5] (embedding first), served without it" in finding.message
    assert "SGLANG_EAGLE3_PROBE_LAYER_IDS=-1,2,5" in finding.fix
    assert '"eagle_aux_hidden_state_layer_ids": [-1, 2, 5]' in finding.fix
    assert "UNIT" not in finding.fix


@pytest.mark.parametrize(
    ("served", "trained", "words"),
    [
        ([5, 2, -1], [-1, 2, 5], "another order"),
        ([2, 5, 8], [1, 4, 7], "one layer late"),
        ([1, 4, 7], [2, 5, 8], "one layer early"),
        ([2, 5, 7], [2, 5, 8], "slot 2 differs"),
        ([2, 5], [2, 5, 8], "trained on 3 slots"),
        ([2, 5, 8], [2, -1, 8], "(with the embedding), served without it"),
    ],
)
def test_kinds_of_difference(
    tmp_path: Path, served: list[int], trained: list[int], words: str
) -> None:
    finding = one(tmp_path, "E3P101", with_ids(served, trained_output_ids=trained))
    assert words in finding.message
    if -1 not in trained:
        assert "SGLANG_EAGLE3_PROBE_LAYER_IDS_UNIT=output_id" in finding.fix


def test_fix_names_patches_that_are_off(tmp_path: Path) -> None:
    head = samples.header(patches=[])
    finding = one(tmp_path, "E3P101", with_ids([2, 5, 8], trained_output_ids=[5, -1, 2]), head=head)
    assert "embedding_capture and capture_order in SGLANG_EAGLE3_PROBE_PATCHES" in finding.fix


def test_unknown_training_is_said_and_does_not_fail(tmp_path: Path) -> None:
    found = results(tmp_path, with_ids([-1, 2, 5], trained_output_ids=None))
    (unknown,) = found
    assert isinstance(unknown, Unknown)
    assert unknown.code == "E3P101"
    assert "SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS" in unknown.decide
    assert exit_code(found) == 0


@pytest.mark.parametrize(
    ("key", "listed", "fires"),
    [
        ("eagle_aux_hidden_state_layer_ids", [2, 5, 7], False),  # boundaries of what is served
        ("eagle_aux_hidden_state_layer_ids", [1, 4, 6], True),
        ("aux_hidden_states_layer_ids", [1, 4, 6], False),  # output ids of what is served
        ("aux_hidden_states_layer_ids", [2, 5, 7], True),
        ("eagle_config.layer_ids", [2, 5, 7], False),  # unit not known: either reading will do
        ("eagle_config.layer_ids", [3, 6, 8], True),
    ],
)
def test_unread_lists_are_compared_in_their_unit(
    tmp_path: Path, key: str, listed: list[int], fires: bool
) -> None:
    records = with_ids(
        [1, 4, 6],
        configured=None,
        configured_at="default",
        unit="default",
        trained_output_ids=None,
        ignored_keys={key: listed},
    )
    assert bool(findings(results(tmp_path, records), "E3P102")) is fires


def test_order_that_the_probe_honours_is_a_note(tmp_path: Path) -> None:
    records = with_ids([5, 2, 8], configured=[5, 2, 8], trained_output_ids=[5, 2, 8])
    found = results(tmp_path, records)
    (finding,) = findings(found, "E3P103")
    assert finding.severity == "note"
    assert exit_code(found) == 0
    assert one(tmp_path / "lost", "E3P103", FIRING["E3P103"]).severity == "error"


def test_order_that_patched_source_keeps_is_not_put_down_to_the_probe(tmp_path: Path) -> None:
    records = with_ids(
        [5, 2, 8], configured=[5, 2, 8], trained_output_ids=[5, 2, 8], source_patched=True
    )
    (finding,) = findings(results(tmp_path, records), "E3P103")
    assert finding.severity == "note"
    assert "patched source" in finding.message
    assert "the probe" not in finding.message + finding.fix


@pytest.mark.parametrize(
    "records",
    [
        with_ids([-1, 2, 5], draft_num_aux=4),
        replace(samples.clean(), samples.aux_states(count=2, widths=[192, 192])),
        replace(samples.clean(), samples.aux_states(widths=[192, 192, 200])),
    ],
)
def test_slots_and_widths_must_add_up(tmp_path: Path, records: list[Record]) -> None:
    assert one(tmp_path, "E3P104", records).severity == "error"


def test_unit_is_unknown_when_the_class_reads_boundaries(tmp_path: Path) -> None:
    records = with_ids([2, 5, 7], configured=[3, 6, 8], unit="boundary", trained_output_ids=None)
    codes = {r.code for r in results(tmp_path, records) if isinstance(r, Unknown)}
    assert codes == {"E3P101", "E3P105"}
    settled = samples.header(settings={"SGLANG_EAGLE3_PROBE_LAYER_IDS_UNIT": "boundary"})
    again = results(tmp_path / "set", records, head=settled)
    assert {r.code for r in again} == {"E3P101"}


def test_fc_in_decode_is_doubtful_and_a_draft_without_fc_is_fine(tmp_path: Path) -> None:
    taken = replace(samples.clean(), samples.draft_forward("decode", fc="taken"))
    assert one(tmp_path / "a", "E3P201", taken).severity == "warning"
    absent = samples.draft_forward("extend_verify", fc="absent", fc_in_features=None, width_in=192)
    records = replace(LOST_AUX, absent)
    assert findings(results(tmp_path / "b", records), "E3P201") == []
    assert findings(results(tmp_path / "c", records), "E3P203") == []


def test_wrong_flag_comes_first_and_names_the_right_one(tmp_path: Path) -> None:
    records = replace(
        with_arguments(speculative_algorithm="SpeculativeAlgorithm.EAGLE"),
        samples.draft_forward("extend_verify", width_in=192, fc="bypassed"),
        samples.draft_forward("extend_prefill", width_in=192, fc="bypassed"),
        samples.draft_forward("decode"),
    )
    found = results(tmp_path, records)
    assert found[0].code == "E3P202"
    assert isinstance(found[0], Finding)
    assert "--speculative-algorithm EAGLE3" in found[0].fix


def test_aux_not_asked_for_is_not_lost(tmp_path: Path) -> None:
    quiet = samples.aux_states(count=None, widths=[], capture_hidden_mode="NULL")
    assert results(tmp_path, replace(samples.clean(), quiet)) == []


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"size": 500}, "error", "500 entries for 512 head rows"),
        ({"maximum": 1024}, "error", "outside the 1024 target tokens"),
        ({"minimum": -3}, "error", "smallest id is -3"),
        ({"equals_d2t_plus_arange": False}, "error", "not d2t + arange"),
        ({"agrees_with_t2d": False}, "error", "t2d"),
        ({"d2t_looks_direct": True}, "error", "target ids themselves"),
        ({"strictly_increasing": False}, "warning", "not increasing"),
        ({"identity_share": 1.0}, "warning", "itself"),
    ],
)
def test_map_faults(tmp_path: Path, changes: dict[str, Any], severity: str, words: str) -> None:
    finding = one(tmp_path, "E3P402", with_map(**changes))
    assert finding.severity == severity
    assert words in finding.message


def test_map_not_in_force_is_one_finding(tmp_path: Path) -> None:
    found = results(tmp_path, with_map(in_force=False))
    assert [r.code for r in found] == ["E3P401"]
    whole = replace(
        with_map(present=False, in_force=False, size=None, head_rows=1024),
    )
    assert results(tmp_path / "whole", whole) == []


def test_accept_length_speaks_of_what_is_left_or_of_the_cause(tmp_path: Path) -> None:
    right = one(tmp_path / "a", "E3P601", FIRING["E3P601"])
    assert "although the wiring that was seen looks right" in right.message
    assert "check next" in right.fix
    wrong = one(tmp_path / "b", "E3P601", samples.owners_case())
    assert "E3P101" in wrong.message
    few = results(tmp_path / "c", [*samples.clean(0), *samples.rounds(10, (0.05, 0.05))])
    assert [(type(r), r.code) for r in few] == [(Unknown, "E3P601")]


def test_losses(tmp_path: Path) -> None:
    lost = Losses(dropped_records={"verify_round": 7}, write_errors=2, last_write_error="full")
    finding = one(tmp_path / "a", "E3P901", samples.clean(), losses=lost)
    assert finding.severity == "warning"
    assert "7 verify_round" in finding.message
    rotated = Losses(rotated_away_files=2, rotated_away_records=90)
    found = results(tmp_path / "b", samples.clean(), losses=rotated)
    assert [(f.code, exit_code(found)) for f in found] == [("E3P901", 0)]
    captures = Losses(captures={"write": 1, "buffer": 3})
    finding = one(tmp_path / "c", "E3P901", samples.clean(), losses=captures)
    assert (finding.severity, exit_code([finding])) == ("note", 0)
    assert "not whole: 3 buffer, 1 write" in finding.message


def test_what_was_not_looked_at_is_a_loss(tmp_path: Path) -> None:
    missed = Losses(missed={"refusal_round": 12, "stats_snapshot": 1, "of_a_newer_probe": 2})
    finding = one(tmp_path, "E3P901", samples.clean(), losses=missed)
    assert finding.severity == "note"
    assert "12 verify forwards whose refusals were overwritten" in finding.message
    assert "2 of_a_newer_probe" in finding.message
    assert "max-running-requests" not in finding.fix
    not_fitting = Losses(missed={"refusal_request": 7})
    finding = one(tmp_path / "fit", "E3P901", samples.clean(), losses=not_fitting)
    assert "7 requests of verify forwards whose draft logits did not fit" in finding.message
    assert "lower --max-running-requests" in finding.fix
    assert "report it" not in finding.fix


def test_killed_server_is_a_note(tmp_path: Path) -> None:
    path = samples.write(tmp_path, samples.clean(), footer=False)
    path.write_bytes(path.read_bytes()[:-5])
    found = judge(collect(read(tmp_path)))
    assert [(f.code, exit_code(found)) for f in found] == [("E3P903", 0)]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([samples.arguments(in_force={})], "without speculative decoding"),
        ([samples.seams(), samples.arguments()], "layer ids, draft forwards"),
    ],
)
def test_empty_traces_are_not_clean(tmp_path: Path, records: list[Record], words: str) -> None:
    records = [samples.arguments(in_force={}, asked={})] if "without" in words else records
    assert words in findings(results(tmp_path, records), "E3P905")[0].message


def test_main_process_alone_is_not_clean(tmp_path: Path) -> None:
    head = samples.header(role="main")
    assert "no process that runs" in one(tmp_path, "E3P905", [samples.seams()], head=head).message


def test_a_failing_rule_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[Result]:
        raise ZeroDivisionError("oops")

    rule = RULES[0]
    bad = Rule(rule.code, rule.title, rule.page, broken)
    monkeypatch.setattr(registry, "RULES", (bad, *RULES[1:]))
    found = results(tmp_path, samples.owners_case())
    assert findings(found, "E3P101")
    assert any(isinstance(r, Unknown) and "ZeroDivisionError" in r.message for r in found)


def test_findings_come_worst_first(tmp_path: Path) -> None:
    records = replace(samples.owners_case(), samples.seams(release_proved=False))
    severities = [r.severity for r in results(tmp_path, records) if isinstance(r, Finding)]
    assert severities == ["error", "warning", "note"]


def test_newest_layer_ids_count(tmp_path: Path) -> None:
    old = samples.layer_ids([2, 5, 8], trained_output_ids=[-1, 2, 5])
    new = [r for r in samples.clean() if isinstance(r, LayerIds)]
    rest = [r for r in samples.clean() if not isinstance(r, LayerIds)]
    assert results(tmp_path, [old, *new, *rest]) == []


def test_find_takes_any_case() -> None:
    assert find("e3p101") is find("E3P101") is not None
    assert find("E3P000") is None
    assert VerifyRound is not None
