"""What the static rules said when the server loaded the draft, beside what the trace shows.

The same fault can be seen twice: predicted from files, and on the running server. The server's
word is the one to show; the table says which static rule it speaks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sglang_eagle3_probe.rules.base import Finding, Result, Seen, Unknown
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.trace.static_records import StaticFindings

_LAYERS = ("E3P101", "E3P102", "E3P103", "E3P105")
_SLOTS = ("E3P104",)
_NAMES = ("E3P301",)
_PARAMETERS = ("E3P302",)
_FILL = (*_NAMES, *_PARAMETERS)
_MAP = ("E3P402",)

COVERED_BY: dict[str, tuple[str, ...]] = {
    "E3P110": ("E3P102", "E3P101"),  # ids where SGLang does not look
    "E3P111": ("E3P105", "E3P101"),  # the other unit
    "E3P112": _SLOTS,  # outside the target
    "E3P113": _SLOTS,  # named twice
    "E3P114": ("E3P103", "E3P101"),  # not ascending
    "E3P115": ("E3P101", "E3P104"),  # the embedding is not captured
    "E3P116": _SLOTS,  # after the last layer
    "E3P117": ("E3P203",),  # the class captures nothing
    "E3P118": _LAYERS,  # read otherwise by another release
    "E3P120": _SLOTS,  # states do not fit fc
    "E3P123": ("E3P101",),  # the trainer left no word
    "E3P124": ("E3P101",),  # other layers than the trainer's notes
    "E3P210": ("E3P202",),  # EAGLE instead of EAGLE3
    "E3P212": ("E3P203", "E3P201"),  # aux states switched off
    "E3P214": ("E3P201",),  # equal widths, so fc is skipped
    "E3P310": _NAMES,
    "E3P311": _PARAMETERS,
    "E3P312": _PARAMETERS,
    "E3P313": _NAMES,
    "E3P315": _FILL,
    "E3P316": _FILL,
    "E3P317": _SLOTS,
    "E3P321": _FILL,
    "E3P324": _FILL,
    "E3P325": _FILL,
    "E3P326": _NAMES,
    "E3P410": ("E3P401",),
    "E3P411": _MAP,
    "E3P412": _MAP,
    "E3P413": _MAP,
    "E3P414": _MAP,
    "E3P420": ("E3P403",),
}
"""Static rule -> rules of a trace that see the same cause, the likeliest first."""


def from_trace(evidence: Evidence) -> list[Result]:
    """Results in a trace's ``static_findings``; the same from several hosts becomes one."""
    merged: dict[tuple[str, str], Result] = {}
    for rank in evidence.ranks:
        for result in _results(rank.static_findings):
            key = (result.code, result.message)
            before = merged.get(key)
            ranks = (*before.ranks, rank.label) if before is not None else (rank.label,)
            merged[key] = replace(before or result, ranks=ranks)
    return list(merged.values())


def join(live: Iterable[Result], static: Sequence[Result]) -> list[Result]:
    """Both, without saying a fault twice: a covered static code stands in the other's ``also``.

    A static question is covered by a finding or a question; a static finding by a finding, and one
    that counts not by a mere note.
    """
    joined = list(live)
    left: list[Result] = []
    for result in static:
        place = _cover(joined, result)
        if place is None:
            left.append(result)
        elif result.code not in joined[place].also:
            cover = joined[place]
            joined[place] = replace(cover, also=(*cover.also, result.code))
    return [*joined, *left]


def _cover(live: Sequence[Result], static: Result) -> int | None:
    for code in COVERED_BY.get(static.code, ()):
        for place, result in enumerate(live):
            if result.code == code and _outweighs(result, static):
                return place
    return None


def _outweighs(live: Result, static: Result) -> bool:
    if isinstance(static, Unknown):
        return True
    if isinstance(live, Unknown):
        return False
    return live.severity != "note" or static.severity == "note"


def _results(record: StaticFindings | None) -> list[Result]:
    if record is None:
        return []
    findings: list[Result] = [
        Finding(
            f.code,
            f.severity,
            f.title,
            f.message,
            tuple(Seen(s.what, s.value, s.where) for s in f.evidence),
            f.fix,
            source="files",
        )
        for f in record.findings
    ]
    return findings + [
        Unknown(u.code, u.title, u.message, u.decide, source="files") for u in record.unknown
    ]
