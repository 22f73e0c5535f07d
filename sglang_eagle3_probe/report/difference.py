"""Two runs compared, as text and as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_eagle3_probe.analysis.acceptance import Acceptance, Rate
from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.analysis.run_difference import PositionDifference, RunDifference
from sglang_eagle3_probe.report.json_out import acceptance
from sglang_eagle3_probe.report.json_understanding import interval
from sglang_eagle3_probe.report.lines import Line, blank, fields, table, wrapped

SCHEMA = "sglang-eagle3-probe-diff/1"
UNIT = "95 %, requests as the unit"


def sentence(found: RunDifference, a: str, b: str) -> str:
    """The answer."""
    by = f"{_signed(found.difference)}{_spread(found.interval)}" if found.difference else "0.00"
    return {
        "longer": f"{b} accepts really more than {a}: {by}",
        "shorter": f"{b} accepts really less than {a}: {by}",
        "same": f"no difference beyond noise between {a} and {b}: {by}{_could_hide(found)}",
        "cannot_tell": f"cannot tell {a} from {b}: {found.why}",
    }[found.answer]


def _could_hide(found: RunDifference) -> str:
    if found.interval is None:
        return ""
    most = max(abs(found.interval.low), abs(found.interval.high))
    return f"; a real one of up to {most:.2f} could hide in it"


def as_lines(found: RunDifference, names: tuple[str, str], width: int) -> list[Line]:
    """For people."""
    a, b = names
    lines = wrapped("", sentence(found, a, b) + ".", width, style="bold")
    lines.append(blank())
    lines += fields(
        [(a, _run(found.a)), (b, _run(found.b)), ("difference", f"b - a, {UNIT}")], width
    )
    if found.settings_differ:
        steps = " and ".join(str(max(side.steps, default=0)) for side in (found.a, found.b))
        lines += wrapped(
            "mind: ",
            f"the runs have {steps} steps, so their ceilings differ; the rates below are "
            "comparable, the lengths are not",
            width,
        )
    if found.positions:
        lines.append(blank())
        rows = [
            [str(p.position), _rate(p.a), _rate(p.b), _signed(p.difference), _real(p)]
            for p in found.positions
        ]
        lines += table(["draft", "a (given the ones before)", "b", "b - a", "95 %; * real"], rows)
    return lines


def as_json(found: RunDifference, names: tuple[str, str], exit_code: int) -> str:
    """Indented JSON."""
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "a": {"name": names[0], **acceptance(found.a)},
        "b": {"name": names[1], **acceptance(found.b)},
        "answer": found.answer,
        "why": found.why,
        "difference": found.difference,
        "interval": interval(found.interval),
        "interval_over": "requests",
        "settings_differ": found.settings_differ,
        "positions": [
            {
                "position": p.position,
                "a": p.a.share,
                "b": p.b.share,
                "difference": p.difference,
                "interval": interval(p.interval),
                "real": p.real,
            }
            for p in found.positions
        ],
        "exit_code": exit_code,
    }
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def _run(seen: Acceptance) -> str:
    if seen.accept_length is None:
        return "no verify rounds"
    return (
        f"accept length {seen.accept_length:.3f}, {seen.rounds} rounds of {seen.requests} requests"
    )


def _rate(rate: Rate) -> str:
    return "unseen" if rate.share is None else f"{rate.share:.3f} ({rate.hits}/{rate.seen})"


def _real(found: PositionDifference) -> str:
    if found.interval is None:
        return "too few requests"
    return f"{_spread(found.interval).strip()}{' *' if found.real else ''}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def _spread(found: Interval | None) -> str:
    return "" if found is None else f" [{found.low:+.3f}, {found.high:+.3f}]"
