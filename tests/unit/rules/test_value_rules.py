"""Rules on values (E3P7xx, E3P906): what they say, and what must not alarm them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.trace import samples

from sglang_eagle3_probe.rules.base import Finding, Result, Unknown
from sglang_eagle3_probe.rules.evidence import Evidence, collect
from sglang_eagle3_probe.rules.registry import judge
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Ranks, SlotStats

Change = Callable[[SlotStats], None]


def evidence(directory: Path, records: list[Record]) -> Evidence:
    samples.write(directory, records, head=samples.header(level="stats"))
    return collect(read(directory))


def results(directory: Path, change: Change | None = None, **how: Any) -> list[Result]:
    """Results of clean values after ``change`` was applied to every slot_stats record."""
    records = samples.clean_with_values(**how)
    for record in records:
        if change is not None and isinstance(record, SlotStats):
            change(record)
    return judge(evidence(directory, records))


def at(*sites: str, from_window: int = 0, **changes: Any) -> Change:
    """Sets fields of the records of some sites."""

    def change(record: SlotStats) -> None:
        if record.site in sites and record.first_tick >= 20 * from_window:
            for name, value in changes.items():
                setattr(record, name, value)

    return change


def scaled(site: str, place: int, factor: float, from_window: int) -> Change:
    def change(record: SlotStats) -> None:
        if record.site == site and record.first_tick >= 20 * from_window:
            slot = record.slots[place]
            slot.rms_mean *= factor
            slot.rms_min *= factor
            slot.rms_max *= factor
            slot.absmax *= factor

    return change


def finding(found: list[Result], code: str) -> Finding:
    (one,) = [r for r in found if isinstance(r, Finding) and r.code == code]
    assert one.evidence
    assert one.fix
    assert not one.message.endswith(".")
    return one


def test_clean_values_are_quiet(tmp_path: Path) -> None:
    assert results(tmp_path) == []


# -- E3P701 -----------------------------------------------------------------------------------


def bad(*sites: str, **fields: Any) -> Change:
    def change(record: SlotStats) -> None:
        if record.site in sites:
            record.slots[-1].nonfinite = 2
            for name, value in fields.items():
                setattr(record, name, value)

    return change


def test_nonfinite_names_the_first_place_in_the_flow(tmp_path: Path) -> None:
    sites = ("decode0_hidden", "extend_verify_in", "aux_verify", "extend_verify_hidden")
    one = finding(results(tmp_path, bad(*sites)), "E3P701")
    assert one.severity == "error"
    assert "at aux_verify slot 2 (boundary h 6): 24 in 960 rows" in one.message
    assert "also at extend_verify_in, extend_verify_hidden, decode0_hidden" in one.message
    assert one.fix.startswith("the target makes them")


def test_nonfinite_in_the_draft_alone(tmp_path: Path) -> None:
    one = finding(results(tmp_path, bad("extend_verify_hidden")), "E3P701")
    assert "the target's states are finite" in one.fix


def test_nonfinite_in_what_may_be_padding_is_a_warning(tmp_path: Path) -> None:
    one = finding(results(tmp_path, bad("aux_verify", joined=False)), "E3P701")
    assert one.severity == "warning"
    assert "padded rows" in one.message


# -- E3P702 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "word"), [(20.0, "exploded"), (0.04, "collapsed")])
def test_drift_between_windows(tmp_path: Path, factor: float, word: str) -> None:
    one = finding(results(tmp_path, scaled("aux_verify", 1, factor, 9)), "E3P702")
    assert one.severity == "warning"
    assert f"aux_verify slot 1 (boundary h 3) {word} in 3 of 7 windows" in one.message
    assert f"{factor:g} times" in one.message


def test_zeros_later_on_are_a_collapse(tmp_path: Path) -> None:
    one = finding(results(tmp_path, scaled("aux_verify", 1, 0.0, 11)), "E3P702")
    assert "collapsed in 1 of 7" in one.message


def test_growth_below_the_factor_and_few_rows_are_quiet(tmp_path: Path) -> None:
    assert results(tmp_path / "a", scaled("aux_verify", 1, 9.0, 9)) == []

    def few(record: SlotStats) -> None:
        scaled("aux_verify", 1, 50.0, 9)(record)
        record.rows = 20

    assert results(tmp_path / "b", few) == []


def test_attention_sinks_in_a_short_window_are_no_drift(tmp_path: Path) -> None:
    def sinks(record: SlotStats) -> None:
        if record.site == "aux_prefill" and record.first_tick >= 180:
            record.slots[1].rms_mean *= 40  # a few rows of a huge norm
            record.slots[1].rms_max *= 900

    assert results(tmp_path, sinks) == []


def test_dead_slot_is_an_error_and_not_the_embedding_too(tmp_path: Path) -> None:
    found = results(tmp_path, scaled("aux_verify", 0, 0.0, 0))
    assert [r.code for r in found] == ["E3P702"]
    assert finding(found, "E3P702").severity == "error"
    assert "slot 0 (boundary h 0) is dead" in finding(found, "E3P702").message


# -- E3P703 -----------------------------------------------------------------------------------


def test_same_slots_with_different_boundaries_are_an_alias(tmp_path: Path) -> None:
    change = at("aux_verify", "extend_verify_in", same_slots=[[1, 2]])
    one = finding(results(tmp_path, change), "E3P703")
    assert one.severity == "error"
    assert "slot 1 (boundary h 3) and slot 2 (boundary h 6)" in one.message
    assert "shares its storage" in one.message
    assert len(one.evidence) == 2


def test_same_slots_with_one_boundary_are_a_repeated_layer(tmp_path: Path) -> None:
    change = at("aux_verify", same_slots=[[1, 2]], boundaries=[0, 3, 3])
    assert "captured twice" in finding(results(tmp_path, change), "E3P703").message


def test_equal_zeros_are_not_the_same_tensor(tmp_path: Path) -> None:
    def change(record: SlotStats) -> None:
        at("aux_verify", same_slots=[[1, 2]])(record)
        for place in (1, 2):
            scaled("aux_verify", place, 0.0, 0)(record)

    assert {r.code for r in results(tmp_path, change)} == {"E3P702"}


# -- E3P704 -----------------------------------------------------------------------------------


def equals(place: int, share: float | None, **fields: Any) -> Change:
    def change(record: SlotStats) -> None:
        if record.site.startswith("aux_"):
            record.slots[place].equals_embedding = share
            for name, value in fields.items():
                setattr(record, name, value)

    return change


def test_embedding_slot_that_is_not_the_embedding(tmp_path: Path) -> None:
    found = results(tmp_path, equals(0, 0.0))
    codes = [(r.code, r.severity) for r in found if isinstance(r, Finding)]
    assert codes == [("E3P704", "error"), ("E3P704", "error")]  # prefill and verify
    assert "should be the embedding" in found[0].message


def test_window_edges_excuse_two_forwards(tmp_path: Path) -> None:
    assert results(tmp_path / "edges", equals(0, 0.9)) == []  # 8 of 80 rows, two of 20 forwards
    doubtful = results(tmp_path / "some", equals(0, 0.86))
    assert [r.severity for r in doubtful if isinstance(r, Finding)] == ["warning"] * 2
    broken = results(tmp_path / "more", equals(0, 0.8))
    assert [r.severity for r in broken if isinstance(r, Finding)] == ["error"] * 2


def test_few_rows_that_miss_are_unknown(tmp_path: Path) -> None:
    found = results(tmp_path, equals(0, 0.5, rows=10), windows=2)
    assert [(type(r), r.code) for r in found] == [(Unknown, "E3P704")] * 2


def test_another_slot_that_is_the_embedding(tmp_path: Path) -> None:
    found = results(tmp_path, equals(1, 1.0))
    assert all("slot 1 (boundary h 3) equals the embedding" in r.message for r in found)
    assert {r.severity for r in found if isinstance(r, Finding)} == {"error"}


def test_no_embedding_tapped_is_unknown(tmp_path: Path) -> None:
    (unknown,) = results(tmp_path, equals(0, None))
    assert isinstance(unknown, Unknown)
    assert unknown.code == "E3P704"


# -- E3P705 -----------------------------------------------------------------------------------


def two_ranks(directory: Path, change: Change | None = None, **second: Any) -> Evidence:
    for rank in range(2):
        records = samples.clean_with_values()
        for record in records:
            if rank and change is not None and isinstance(record, SlotStats):
                change(record)
        places: dict[str, Any] = {"tp_rank": rank, "tp_size": 2, **(second if rank else {})}
        head = samples.header(ranks=Ranks(**places), pid=rank, level="stats")
        samples.write(directory, records, head=head, name=f"probe-scheduler-tp{rank}-pid{rank}")
    return collect(read(directory))


def differ(*sites: str) -> Change:
    def change(record: SlotStats) -> None:
        if record.site in sites:
            record.tick_digests = {t: d + "*" for t, d in record.tick_digests.items()}

    return change


def test_equal_ranks_are_quiet_and_counted(tmp_path: Path) -> None:
    seen = two_ranks(tmp_path)
    assert judge(seen) == []
    assert len(seen.rank_comparisons) == len(samples.SITES)
    assert {(c.ticks, c.equal) for c in seen.rank_comparisons} == {(96, 96)}


def test_partial_sums_are_named_at_the_first_site(tmp_path: Path) -> None:
    seen = two_ranks(tmp_path, differ("extend_verify_hidden", "aux_verify"))
    one = finding(judge(seen), "E3P705")
    assert one.severity == "error"
    assert "scheduler tp0, scheduler tp1" in one.message
    assert "first at aux_verify: 96 of 96 differ" in one.message
    assert "--enforce-disable-flashinfer-allreduce-fusion" in one.fix
    assert any("aux_prefill" in str(s.value) for s in one.evidence if s.what == "equal at")


def test_split_fc_alone_is_a_note(tmp_path: Path) -> None:
    one = finding(judge(two_ranks(tmp_path, differ("extend_verify_fc"))), "E3P705")
    assert one.severity == "note"


def test_other_data_parallel_groups_are_not_compared(tmp_path: Path) -> None:
    assert judge(two_ranks(tmp_path, differ("aux_verify"), dp_rank=1)) == []


def test_padding_may_differ(tmp_path: Path) -> None:
    def change(record: SlotStats) -> None:
        differ("aux_verify")(record)
        at("aux_verify", joined=False)(record)

    assert finding(judge(two_ranks(tmp_path, change)), "E3P705").severity == "warning"


def test_ranks_that_count_other_forwards_are_unknown(tmp_path: Path) -> None:
    def later(record: SlotStats) -> None:
        digests = record.tick_digests
        record.tick_digests = {str(int(t) + 1): d for t, d in digests.items()}

    unknown = [r for r in judge(two_ranks(tmp_path / "a", later)) if isinstance(r, Unknown)]
    assert [r.code for r in unknown] == ["E3P705"]
    assert "do not count the same forwards" in unknown[0].message

    def elsewhere(record: SlotStats) -> None:
        record.tick_digests = {str(int(t) + 9000): d for t, d in record.tick_digests.items()}

    (apart,) = judge(two_ranks(tmp_path / "b", elsewhere))
    assert "no forward in common" in apart.message


# -- E3P706 -----------------------------------------------------------------------------------


def found_share(share: float, **fields: Any) -> Change:
    return at("extend_verify_in", found_in_target=share, **fields)


def test_draft_input_that_the_target_never_handed_out(tmp_path: Path) -> None:
    one = finding(results(tmp_path, found_share(0.0)), "E3P706")
    assert one.severity == "error"
    assert "extend_verify_in" in one.message
    assert "0 of 960 rows" in one.message


@pytest.mark.parametrize(
    ("share", "severity"), [(0.9, None), (0.87, "warning"), (0.85, "error"), (0.5, "error")]
)
def test_tolerance(tmp_path: Path, share: float, severity: str | None) -> None:
    found = results(tmp_path, found_share(share))
    assert [r.severity for r in found if isinstance(r, Finding)] == [severity] * bool(severity)


def test_single_forward_windows_prove_nothing(tmp_path: Path) -> None:
    def change(record: SlotStats) -> None:
        found_share(0.0)(record)
        if record.site == "extend_verify_in":
            record.last_tick = record.first_tick

    one = finding(results(tmp_path, change), "E3P706")
    assert one.severity == "warning"  # every cut at the same place could still do this


def test_unknown_padding_is_left_out(tmp_path: Path) -> None:
    found = results(tmp_path / "unjoined", found_share(0.2, joined=False))
    assert [r.code for r in found] == ["E3P906"]


def test_both_workers_know_their_padding(tmp_path: Path) -> None:
    # Seen on an H200 with 0.5.12.post1: a healthy V1 server finds every row.
    records = samples.replace(
        samples.clean_with_values(only="extend_verify_in", found_in_target=0.2),
        samples.arguments(worker_generation="V1"),
    )
    assert "E3P706" in [r.code for r in judge(evidence(tmp_path / "v1", records))]


# -- E3P906 -----------------------------------------------------------------------------------


def coverage(directory: Path, **changes: Any) -> list[Result]:
    records = [*samples.clean_with_values(), samples.stats_coverage(**changes)]
    return judge(evidence(directory, records))


def test_kind_never_tapped_is_a_warning(tmp_path: Path) -> None:
    found = coverage(tmp_path / "a", skipped={"decode2_in": {"dtype": 40}})
    one = finding(found, "E3P906")
    assert one.severity == "warning"
    assert "never measured at decode2_in (dtype)" in one.message
    found = coverage(tmp_path / "b", skipped={"aux_verify": {"not_compiled": 1}})
    assert finding(found, "E3P906").severity == "note"


def test_forwards_passed_over_matter_only_when_every_row_was_asked_for(tmp_path: Path) -> None:
    def lost(
        directory: Path, settings: dict[str, str], sites: list[str], ticks: int
    ) -> list[Result]:
        records = samples.clean_with_values()
        for record in records:
            if isinstance(record, SlotStats):
                at(*sites, lost_ticks=ticks)(record)
        samples.write(directory, records, head=samples.header(level="stats", settings=settings))
        return judge(collect(read(directory)))

    every = {"SGLANG_EAGLE3_PROBE_STATS_ROWS": "1"}
    assert lost(tmp_path / "a", {}, list(samples.SITES), 30) == []
    few = finding(lost(tmp_path / "b", every, ["aux_prefill"], 3), "E3P906")
    assert few.severity == "note"
    assert few.message.startswith("36 forwards (1%)")
    many = finding(lost(tmp_path / "c", every, list(samples.SITES), 30), "E3P906")
    assert many.severity == "warning"


def test_level_without_any_statistics(tmp_path: Path) -> None:
    one = finding(judge(evidence(tmp_path / "a", samples.clean())), "E3P906")
    assert one.severity == "warning"
    assert "none were recorded" in one.message
    idle = judge(evidence(tmp_path / "b", samples.clean(0)))
    assert [r.code for r in idle] == ["E3P905"]
