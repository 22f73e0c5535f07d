"""The ring on the device: one int32 allocation for the counters and records of all sites.

    words 0 .. 2 * sites - 1     per site: tick, done
    then, 32-byte aligned        per site: [depth, max_rows, slots, 8] records

One allocation, so that one copy drains everything. ``tick`` counts the finished launches of the
site modulo 2**32; ``done`` counts the programs of the running launch that have finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .layout import RECORD_WORDS, SiteLayout

MAX_WORDS = 2**31 - 1
"""Kernels address words with 32-bit offsets."""


@dataclass(frozen=True)
class Place:
    """Where a site lives in the buffer, in int32 words."""

    layout: SiteLayout
    tick: int
    done: int
    records: int


def places(sites: Sequence[SiteLayout]) -> tuple[tuple[Place, ...], int]:
    """Places of the sites, and the words of the whole buffer."""
    if not sites:
        raise ValueError("a ring needs at least one site")
    if len({site.name for site in sites}) != len(sites):
        raise ValueError("site names repeat")
    # Records start on a multiple of their own size: a record then never straddles two of the
    # 32-byte sectors in which GPU memory is read and written.
    at = -(-2 * len(sites) // RECORD_WORDS) * RECORD_WORDS
    found = []
    for index, site in enumerate(sites):
        found.append(Place(site, 2 * index, 2 * index + 1, at))
        at += site.words
    if at > MAX_WORDS:
        raise ValueError(f"a ring of {at} words is too large; at most {MAX_WORDS}")
    return tuple(found), at


class Ring:
    """The buffer, the places in it, and why tensors were not recorded.

    Allocates in the constructor only: construct it outside CUDA graph capture. A site belongs to
    one stream at a time, since a launch takes its tick from the device.
    """

    def __init__(self, sites: Sequence[SiteLayout], device: Any) -> None:
        self.places, words = places(sites)
        self.sites = tuple(place.layout for place in self.places)
        self.device = torch.device(device)
        self.buffer = torch.zeros(words, dtype=torch.int32, device=self.device)
        self.device = self.buffer.device  # with its index
        self._index = {site.name: index for index, site in enumerate(self.sites)}
        self.skipped: dict[tuple[str, str], int] = {}
        """Tensors not recorded: (site name, reason) -> how many."""

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer."""
        return int(self.buffer.numel()) * 4

    def site_index(self, name: str) -> int:
        """Index of the named site; KeyError when there is none."""
        return self._index[name]

    def records(self, site: int) -> Any:
        """The site's region as a tensor view, int32 [depth, max_rows, slots, 8]."""
        place = self.places[site]
        region = self.buffer[place.records : place.records + place.layout.words]
        return region.view(place.layout.shape)

    def skip(self, site: int, reason: str) -> None:
        """Count a tensor that was not recorded."""
        key = (self.sites[site].name, reason)
        self.skipped[key] = self.skipped.get(key, 0) + 1
