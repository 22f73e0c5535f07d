"""The seam table and the version ranges by themselves, without any wheel."""

from __future__ import annotations

import pytest
from packaging.version import Version

from sglang_eagle3_probe.host import versions
from sglang_eagle3_probe.host.seams import Seam, seams_for
from sglang_eagle3_probe.host.versions import NEWEST_PROVED, OLDEST_PROVED, Releases

from .expected import ALL_SEAMS, NEEDED, PARTIAL, SEVERAL_TARGETS, expected_releases, row_id
from .facts import FACTS
from .releases import PROOFS, PROVED_BY, RELEASES, strongest_proof

every_row = pytest.mark.parametrize("seam", ALL_SEAMS, ids=row_id)
every_release = pytest.mark.parametrize("release", RELEASES)


@every_row
def test_row_is_well_formed(seam: Seam) -> None:
    assert seam.name.replace("_", "").isalnum()
    assert seam.name.islower()
    assert seam.module.startswith("sglang.")
    assert all(part.isidentifier() for part in seam.attribute.split("."))
    assert seam.attribute.count(".") <= 1
    assert all(p.isidentifier() and p not in ("self", "cls") for p in seam.parameters)
    assert len(set(seam.parameters)) == len(seam.parameters)
    assert len(seam.why.strip()) > 10


@every_row
def test_range_is_sane(seam: Seam) -> None:
    since = Version(seam.releases.since)
    assert since >= Version(OLDEST_PROVED)
    if seam.releases.until is not None:
        assert since <= Version(seam.releases.until) <= Version(NEWEST_PROVED)
    assert seam.releases.since in RELEASES
    assert seam.releases.until in (None, *RELEASES)


@pytest.mark.parametrize("name", sorted({*NEEDED, *(seam.name for seam in ALL_SEAMS)}))
def test_seam_has_rows_where_it_is_needed(name: str) -> None:
    expected = expected_releases(name)
    for release in RELEASES:
        rows = [row for row in seams_for(release, ALL_SEAMS) if row.name == name]
        if expected.contains(release):
            assert rows, f"{name} has no row for {release}; if rightly so, say it in expected.py"
        else:
            assert not rows, f"{name} has a row for {release}, which expected.py does not expect"


@every_release
def test_single_seams_have_one_target(release: str) -> None:
    names = [row.name for row in seams_for(release, ALL_SEAMS)]
    assert not {n for n in names if names.count(n) > 1} - SEVERAL_TARGETS


@every_release
def test_no_target_is_wrapped_twice(release: str) -> None:
    """Also: rows of one name for one class do not overlap."""
    rows = seams_for(release, ALL_SEAMS)
    targets = [row.target for row in rows]
    assert len(set(targets)) == len(targets)
    classes = [(row.name, row.module, row.attribute.rpartition(".")[0]) for row in rows]
    assert len(set(classes)) == len(classes)


def test_rows_of_one_class_do_not_overlap_after_the_newest() -> None:
    rows = seams_for("99.0", ALL_SEAMS)
    assert {row.name for row in rows} >= {n for n in NEEDED if expected_releases(n).until is None}
    assert len({row.target for row in rows}) == len(rows)


def test_releases_are_listed_in_order() -> None:
    assert list(RELEASES) == sorted(RELEASES, key=Version)
    assert (RELEASES[0], RELEASES[-1]) == (OLDEST_PROVED, NEWEST_PROVED)
    assert all(versions.is_proved(release) for release in RELEASES)


def test_proofs_are_known() -> None:
    assert set(PROVED_BY) <= set(RELEASES)
    assert {proof for proofs in PROVED_BY.values() for proof in proofs} <= set(PROOFS)
    assert strongest_proof(OLDEST_PROVED) in PROOFS
    assert strongest_proof("0.5.23") == "live on CPU"


def test_expectations_are_about_needed_seams() -> None:
    assert set(PARTIAL) <= set(NEEDED)
    assert set(SEVERAL_TARGETS) <= set(NEEDED)


def test_facts_are_distinct_and_explained() -> None:
    claims = [(f.module, f.scope, f.kind, f.needle) for f in FACTS]
    assert len(set(claims)) == len(claims)
    assert all(fact.why for fact in FACTS)


@pytest.mark.parametrize(
    ("since", "until", "release", "held"),
    [
        ("0.5.9", None, "0.5.9", True),
        ("0.5.9", None, "0.5.8.post1", False),
        ("0.5.9", None, "0.5.10", True),
        ("0.5.9", None, "0.6.0", True),
        ("0.5.9", None, "0.5.24rc1", True),
        ("0.5.9", "0.5.12", "0.5.12.post1", False),
        ("0.5.9", "0.5.12.post1", "0.5.12.post1", True),
        ("0.5.9", "0.5.12.post1", "0.5.12", True),
        ("0.5.9", "0.5.12.post1", "0.5.13", False),
        ("0.5.12", None, "0.5.12.post1", True),
        ("0.5.12", None, "0.5.12rc1", False),
        ("0.5.13", None, "0.5.13+cu130", True),
    ],
)
def test_range_contains(since: str, until: str | None, release: str, held: bool) -> None:
    assert Releases(since, until).contains(release) is held


@pytest.mark.parametrize("text", ["unknown", "", "main-2026", "not a version"])
def test_unknown_release_gets_the_newest_rows(text: str) -> None:
    assert Releases("0.5.13").contains(text)
    assert not Releases("0.5.9", "0.5.11").contains(text)
    assert not versions.is_proved(text)


@pytest.mark.parametrize(
    ("release", "proved"),
    [
        ("0.5.8.post1", False),
        ("0.5.9", True),
        ("0.5.15.post1", True),
        ("0.5.23", True),
        ("0.5.24", False),
    ],
)
def test_is_proved(release: str, proved: bool) -> None:
    assert versions.is_proved(release) is proved


def test_range_reads_well() -> None:
    assert str(Releases("0.5.13")) == "0.5.13 and later"
    assert str(Releases("0.5.9", "0.5.11")) == "0.5.9 to 0.5.11"


def test_installed_version_of_nothing() -> None:
    assert versions.installed_version("no-such-distribution-here") is None
