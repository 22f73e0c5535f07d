"""A replay as text and as JSON."""

from __future__ import annotations

from typing import Any

from sglang_eagle3_probe.analysis.intervals import Share
from sglang_eagle3_probe.offline.replaying.outcomes import Outcome
from sglang_eagle3_probe.offline.replaying.replay import RankAgreement, Replay
from sglang_eagle3_probe.offline.replaying.replay_verdict import (
    Verdict,
    first_difference,
    gains,
    trainer_gaps,
)
from sglang_eagle3_probe.report.lines import Line, blank, fields, table, wrapped

VERSION = 1
STYLES = {
    "engine": "bold red",
    "states": "bold red",
    "weak": "bold yellow",
    "healthy": "bold green",
}


def lines(replay: Replay, verdict: Verdict, width: int) -> list[Line]:
    """The verdict first, then what it was read from."""
    result = wrapped("", verdict.sentence, width, style=STYLES[verdict.kind])
    for detail in verdict.details:
        result += wrapped("  ", detail, width)
    if verdict.fix:
        result += wrapped("Fix: ", verdict.fix, width, "bold")
    result += [blank(), *_what(replay, width), blank(), *_steps(replay)]
    if len(replay.outcomes) > 1:
        result += [blank(), *_variations(replay, width)]
    return result


def _what(replay: Replay, width: int) -> list[Line]:
    rows = [
        ("replayed", f"{replay.requests} requests, {replay.rows} rows of states, {replay.rounds} "
         f"rounds, {replay.engine_dtype}"),
        ("boundaries", ", ".join(map(str, replay.boundaries)) or "not known"),
    ]  # fmt: skip
    if not replay.greedy:
        rows.append(("sampling", "answers were sampled; the target's own first choice is judged"))
    if replay.trees:
        rows.append(("trees", "compared by the paths of each depth, not step by step"))
    if replay.ranks is not None and replay.ranks.known.refused:
        rows.append(("ranks", _ranks(replay.ranks)))
    first = first_difference(replay)
    if first is not None:
        step = "before step 0" if first.step < 0 else f"step {first.step}"
        rows.append(("first difference", f"{step}, {first.tensor}: {first.size}"))
    rows += [("not replayed", text) for text in replay.skipped[:5]]
    if len(replay.skipped) > 5:
        rows.append(("not replayed", f"{len(replay.skipped) - 5} more requests"))
    return fields(rows, width)


def _ranks(found: RankAgreement) -> str:
    """Where the engine's own ranks of refused drafts were found, and how many agree."""
    known = found.known
    text = f"known at {known.known} of {known.refused} refused drafts"
    if known.why:
        text += f" ({known.why})"
    if not found.compared:
        return text
    ties = f" and {found.ties} ties" if found.ties else ""
    return f"{text}; {found.same}{ties} of {found.compared} equal the replay's"


def _steps(replay: Replay) -> list[Line]:
    promised = trainer_gaps(replay)
    header = ["step", "same tokens as the engine", "right, teacher-forced", "right, free-running"]
    if promised:
        header.append("trainer")
    rows = []
    for step, seen in enumerate(replay.whole.accuracy):
        row = [str(step), _same(replay, step), _share(seen), "-"]
        if step < len(replay.free):
            row[3] = _share(replay.free[step])
        if promised:
            row.append(f"{promised[step][0]:.3f}" if step < len(promised) else "-")
        rows.append(row)
    return table(header, rows)


def _same(replay: Replay, step: int) -> str:
    if step >= len(replay.whole.agreement):
        return "not captured"
    found = replay.whole.agreement[step]
    ties = f" and {found.ties} ties" if found.ties else ""
    return f"{found.same}{ties} of {found.compared}"


def _share(seen: Share) -> str:
    if not seen.seen:
        return "-"
    interval = seen.interval
    return f"{seen.hits / seen.seen:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _variations(replay: Replay, width: int) -> list[Line]:
    """Best first, with what makes the engine do it where that would surely help."""
    helps = {gain.outcome.variation.name: gain for gain in gains(replay) if gain.certain}
    ran = sorted((o for o in replay.outcomes if not o.failed), key=_order)
    aside = [o for o in ran if o.set_aside]
    compared = any(o.different.seen for o in ran)
    header = ["variation", "accept length", "first token right"]
    if compared:
        header.append("same as the engine")
    if aside:
        header.append("rows")
    rows = [_row(outcome, compared, bool(aside)) for outcome in ran]
    count = len(replay.base.leading)
    result = wrapped("", f"Variations on {count} rows, best first:", width, style="bold")
    result += table(header, rows)
    if aside:
        text = (
            f"{len(aside)} variations without an accept length were judged by their first token "
            f"on {len(aside[0].leading)} rows and set aside: surely worse, or others did better. "
            "All of them on more rows: --rows N, which takes its time."
        )
        result += wrapped("", text, width)
    for name, gain in helps.items():
        result += wrapped(f"{name}: ", gain.outcome.variation.fix, width, "bold")
    for outcome in replay.outcomes:
        if outcome.failed:
            result += wrapped(f"{outcome.variation.name}: ", outcome.failed, width, "dim", "dim")
    return result


def _order(outcome: Outcome) -> tuple[bool, float, float]:
    """Best first; those that were set aside are not measured alike and come after the others."""
    first = outcome.accuracy[0].share if outcome.accuracy else None
    return outcome.set_aside, -(outcome.length or 0.0), -(first or 0.0)


def _row(outcome: Outcome, compared: bool, counted: bool) -> list[str]:
    length = outcome.length
    row = [
        outcome.variation.name,
        f"{length:.2f}" if length is not None else "-",
        _share(outcome.accuracy[0]) if outcome.accuracy else "-",
    ]
    if compared:
        seen = outcome.different
        row.append(_share(Share(seen.seen - seen.hits, seen.seen)))
    if counted:
        row.append(str(len(outcome.leading)))
    return row


def as_json(replay: Replay, verdict: Verdict) -> dict[str, Any]:
    """Everything, for programs. Shares have ``hits`` and ``seen``; lengths count the bonus."""
    first = first_difference(replay)
    return {
        "version": VERSION,
        "verdict": {
            "kind": verdict.kind,
            "sentence": verdict.sentence,
            "details": list(verdict.details),
            "fix": verdict.fix,
        },
        "first_difference": None
        if first is None
        else {
            "step": first.step,
            "tensor": first.tensor,
            "size": first.size,
            "meaning": first.meaning,
        },
        "requests": replay.requests,
        "rows": replay.rows,
        "rounds": replay.rounds,
        "engine_dtype": replay.engine_dtype,
        "greedy": replay.greedy,
        "trees": replay.trees,
        "boundaries": list(replay.boundaries),
        "trained_boundaries": list(replay.trained_boundaries or ()) or None,
        "hidden_errors": list(replay.hidden),
        "ranks": _ranks_json(replay),
        "not_replayed": list(replay.skipped),
        "as_configured": _outcome_json(replay.whole),
        "free_running": [_share_json(share) for share in replay.free],
        "trainer": [
            {"accuracy": promised, "lead": gap, "interval": [interval.low, interval.high]}
            for promised, gap, interval in trainer_gaps(replay)
        ],
        "variations": [
            {**_outcome_json(o), "fix": o.variation.fix}
            for o in sorted(replay.outcomes, key=_order)
        ],
    }


def _ranks_json(replay: Replay) -> dict[str, Any] | None:
    found = replay.ranks
    if found is None:
        return None
    return {
        "refused": found.known.refused,
        "told": found.known.told,
        "known": found.known.known,
        "why_not_told": found.known.why,
        "compared": found.compared,
        "same": found.same,
        "ties": found.ties,
    }


def _share_json(share: Share) -> dict[str, Any]:
    interval = share.interval
    return {
        "hits": share.hits,
        "seen": share.seen,
        "share": share.share,
        "interval": [interval.low, interval.high],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.variation.name,
        "failed": outcome.failed or None,
        "accept_length": outcome.length,
        "rows": len(outcome.leading),
        "set_aside": outcome.set_aside,
        "accuracy": [_share_json(share) for share in outcome.accuracy],
        "engine": [
            {"same": a.same, "ties": a.ties, "compared": a.compared} for a in outcome.agreement
        ],
    }
