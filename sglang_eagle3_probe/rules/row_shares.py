"""Whether rows that had to be found elsewhere were, given that windows are cut at their edges."""

from __future__ import annotations

from typing import Literal

from sglang_eagle3_probe.analysis.slot_values import Shares

ENOUGH_ROWS = 64
TOLERANCE = 0.05
"""Of the rows that no edge excuses. Two forwards per window are excused at their mean size; a
forward at an edge may be larger than the mean. The faults looked for (a stale or aliased buffer,
rows cut off, wrong source rows) spoil whole forwards or whole requests, far more than this."""
BLANK_WINDOWS = 4

ShareVerdict = Literal["none", "whole", "broken", "doubtful", "too_few"]


def judge_shares(seen: Shares) -> ShareVerdict:
    """none: nothing to judge. whole: all found, or all but what edges excuse. broken: surely not.
    doubtful: more missed than expected, not surely. too_few: rows missed, too few to say why.
    """
    if not seen.rows:
        return "none"
    if not seen.misses:
        return "whole"
    if seen.rows < ENOUGH_ROWS:
        return "too_few"
    # A window of two forwards or more has one that no cut at an edge can hide.
    if not seen.hits and seen.blank_windows >= BLANK_WINDOWS:
        return "broken"
    if seen.inner >= ENOUGH_ROWS:
        if seen.beyond > TOLERANCE * seen.inner:
            return "broken"
        return "doubtful" if seen.beyond > 0 else "whole"
    return "doubtful" if seen.misses * 2 > seen.rows else "too_few"


def share_text(seen: Shares) -> str:
    """``12 of 400 rows``."""
    return f"{seen.hits} of {seen.rows} rows"
