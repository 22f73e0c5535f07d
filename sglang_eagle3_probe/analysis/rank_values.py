"""Whether ranks that must hold the same values do: digests of the same forward compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.analysis.slot_values import SiteValues, flow_order


@dataclass(frozen=True)
class SiteComparison:
    """One site on the tensor-parallel ranks of one data-parallel group."""

    site: str
    ranks: tuple[str, ...]
    """Labels."""
    ticks: int
    """Forwards that at least two ranks hold a digest of."""
    equal: int
    differing: tuple[int, ...]
    """Ticks that differ, ascending."""
    differing_unsure: int
    """Of these, ticks that may hold padded rows of CUDA graphs on some rank."""
    shifted: bool
    """The same digests occur at other ticks: the ranks do not count the same forwards."""


def compare(ranks: Sequence[tuple[str, Mapping[str, SiteValues]]]) -> list[SiteComparison]:
    """Compare (label, values per site) of ranks that ran the same forwards.

    Sites that fewer than two ranks recorded are left out.
    """
    sites = sorted({site for _, values in ranks for site in values}, key=flow_order)
    result = []
    for site in sites:
        held = [(label, values[site]) for label, values in ranks if site in values]
        held = [(label, values) for label, values in held if values.digests]
        if len(held) > 1:
            result.append(_compare_site(site, held))
    return result


def _compare_site(site: str, held: Sequence[tuple[str, SiteValues]]) -> SiteComparison:
    by_tick: dict[int, list[str]] = {}
    for _, values in held:
        for tick, digest in values.digests.items():
            by_tick.setdefault(tick, []).append(digest)
    shared = {tick: digests for tick, digests in by_tick.items() if len(digests) > 1}
    differing = tuple(sorted(t for t, digests in shared.items() if len(set(digests)) > 1))
    unsure = set().union(*(values.unsure_ticks for _, values in held))
    return SiteComparison(
        site=site,
        ranks=tuple(label for label, _ in held),
        ticks=len(shared),
        equal=len(shared) - len(differing),
        differing=differing,
        differing_unsure=sum(tick in unsure for tick in differing),
        shifted=_is_shifted([values for _, values in held], differing),
    )


def _is_shifted(held: Sequence[SiteValues], differing: Sequence[int]) -> bool:
    """Half of what differs from the first rank stands in the first rank at another tick."""
    known = set(held[0].digests.values())
    theirs = [v.digests[t] for v in held[1:] for t in differing if t in v.digests]
    elsewhere = sum(digest in known for digest in theirs)
    # With very few ticks a repeated forward (the same prompt again) would look like a shift.
    return len(theirs) >= 4 and 2 * elsewhere >= len(theirs)
