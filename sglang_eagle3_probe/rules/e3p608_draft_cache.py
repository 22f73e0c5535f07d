"""E3P608: acceptance depends on where the draft's cache came from."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.acceptance import from_outcomes
from sglang_eagle3_probe.analysis.slices import ENOUGH_ROUNDS, Slice, surely_less
from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.slice_evidence import enough, length, rows

FACTOR = 0.75

PAGE = Page(
    checks="Three comparisons, each with 95 % intervals and "
    f"{ENOUGH_ROUNDS} rounds on both sides; surely fewer correct drafts than {FACTOR} times: "
    "requests whose prompt was found in the prefix cache (over 75 %) against those with nothing "
    "found; first rounds of requests against all later ones; the latest stretch of uptime against "
    "the first.",
    why="The draft keeps a KV cache of its own. When a prefix hit, a transfer between prefill and "
    "decode servers, or a long uptime leaves it stale or unwritten, nothing fails; drafts are "
    "merely worse.",
    evidence="`request_start.cached_tokens`, `verify_round.rounds`, and the time since the trace "
    "began.",
    fix="Send the same prompts with --disable-radix-cache, and once more after /flush_cache. If "
    "the difference goes, it is the draft's cache: look for a newer SGLang, or report it with this "
    "trace.",
    ignore="When cached prompts are another kind of traffic, or the traffic changed over the day.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    results: list[Result] = []
    for name, what in (
        ("cached_share", "requests found in the prefix cache"),
        ("uptime", "later hours"),
        ("round", "first rounds of requests"),
    ):
        slices = evidence.understood.slices_of(name)
        found = enough(slices)
        if slices is None or len(found) < 2:
            continue
        good, bad = found[0], found[-1]
        if name == "round":
            good, bad = _pooled(found[1:]), found[0]
        if name == "cached_share" and good.label != "nothing":
            continue
        if name == "round" and bad.label != "0":
            continue
        if surely_less(bad, good, FACTOR):
            results.append(
                RULE.finding(
                    "warning",
                    f"{what} have an accept length of {length(bad)} against {length(good)} "
                    f"({slices.title}: {bad.label} against {good.label})",
                    rows(slices, "request_start, verify_round"),
                    "send the same prompts with --disable-radix-cache and after /flush_cache; if "
                    "the difference goes, the draft's own KV cache is stale or unwritten: try a "
                    "newer SGLang, or report it with this trace",
                )
            )
    return results


def _pooled(pieces: Sequence[Slice]) -> Slice:
    outcomes: dict[tuple[int, int], int] = {}
    for piece in pieces:
        seen = piece.acceptance
        for correct, n in enumerate(seen.histogram):
            key = (len(seen.unconditional), correct)
            outcomes[key] = outcomes.get(key, 0) + n
    return Slice("later", from_outcomes(outcomes, requests=0))


RULE = Rule("E3P608", "acceptance depends on the draft's cache", PAGE, _check)
