"""Every row of the seam table, and every fact, against the wheel of every release."""

from __future__ import annotations

import warnings

import pytest

from sglang_eagle3_probe.host.seams import Seam

from .conftest import SourceOf, unavailable
from .expected import ALL_SEAMS, DELIBERATE, row_id
from .facts import FACTS, Fact
from .releases import RELEASES
from .source import judge
from .wheels import WheelsUnavailable, published


class NarrowRange(UserWarning):
    """A row or fact holds in a release that its range leaves out."""


class UnlistedRelease(UserWarning):
    """The package index has a release that the contract does not cover."""


IN_RANGE = [(r, s) for r in RELEASES for s in ALL_SEAMS if s.releases.contains(r)]
OUT_OF_RANGE = [(r, s) for r in RELEASES for s in ALL_SEAMS if not s.releases.contains(r)]


@pytest.mark.parametrize(
    ("release", "seam"), IN_RANGE, ids=[f"{r}-{row_id(s)}" for r, s in IN_RANGE]
)
def test_row_holds(release: str, seam: Seam, source_of: SourceOf) -> None:
    verdict = judge(source_of(release), seam)
    assert not verdict.fault, f"SGLang {release}: {verdict.fault}"


@pytest.mark.parametrize(
    ("release", "seam"), OUT_OF_RANGE, ids=[f"{r}-{row_id(s)}" for r, s in OUT_OF_RANGE]
)
def test_row_is_rightly_left_out(release: str, seam: Seam, source_of: SourceOf) -> None:
    if not judge(source_of(release), seam).fault and seam.name not in DELIBERATE:
        text = f"{seam.target} would hold in SGLang {release}, but is given for {seam.releases}"
        warnings.warn(text, NarrowRange, stacklevel=1)


@pytest.mark.parametrize("release", RELEASES)
def test_facts_hold(release: str, source_of: SourceOf) -> None:
    source = source_of(release)
    broken = []
    for fact in FACTS:
        holds, claimed = source.holds(fact), fact.releases.contains(release)
        if claimed and not holds:
            broken.append(f"{fact.module}: {fact.name} ({fact.why})")
        elif holds and not claimed:
            text = f"{fact.name} holds in SGLang {release}, but is given for {fact.releases}"
            warnings.warn(text, NarrowRange, stacklevel=1)
    assert not broken, f"SGLang {release}:\n" + "\n".join(broken)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name.replace(" ", "-"))
def test_fact_is_tested_somewhere(fact: Fact) -> None:
    assert any(fact.releases.contains(release) for release in RELEASES)


def test_no_release_is_forgotten() -> None:
    """Only warns: a new release must not turn an unchanged repository red."""
    try:
        index = published()
    except WheelsUnavailable as error:
        unavailable(error)
    since = index.index(RELEASES[0]) if RELEASES[0] in index else len(index)
    for release in index[:since]:
        if release not in RELEASES:
            text = f"SGLang {release} is published, but tests/contract/releases.py lacks it"
            warnings.warn(text, UnlistedRelease, stacklevel=1)
