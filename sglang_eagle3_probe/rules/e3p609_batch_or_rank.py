"""E3P609: acceptance depends on the batch size or on the rank."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.slices import ENOUGH_ROUNDS, surely_less
from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.slice_evidence import enough, length, rows

FACTOR = 0.75

PAGE = Page(
    checks=f"Whether rounds in the largest batches have surely fewer correct drafts than {FACTOR} "
    "times those in the smallest, or one rank than another (95 % intervals, "
    f"{ENOUGH_ROUNDS} rounds each).",
    why="A request's drafts do not depend on its neighbours or on the rank that serves it. Where "
    "they do, rows were mixed up: padded rows, batch metadata, data-parallel gathering, or ranks "
    "with different weights.",
    evidence="`verify_round`, by number of requests in the round and by process.",
    fix="Send the same prompts one at a time and all at once; with --disable-cuda-graph; without "
    "data-parallel attention. The first switch that removes the difference names the place.",
    ignore="When ranks or hours of load serve different kinds of requests.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    results: list[Result] = []
    for name in ("batch_size", "dp_rank", "tp_rank"):
        slices = evidence.understood.slices_of(name)
        found = enough(slices)
        if slices is None or len(found) < 2:
            continue
        good, bad = found[0], found[-1]
        if name != "batch_size":
            ordered = sorted(found, key=lambda s: s.acceptance.accept_length or 0.0)
            good, bad = ordered[-1], ordered[0]
        if surely_less(bad, good, FACTOR):
            results.append(
                RULE.finding(
                    "warning",
                    f"the accept length is {length(good)} at {slices.title} {good.label} and "
                    f"{length(bad)} at {bad.label}; a request's drafts should not depend on that",
                    rows(slices, "verify_round"),
                    "send the same prompts one at a time and all at once, then with "
                    "--disable-cuda-graph, then without data-parallel attention: the first that "
                    "removes the difference names the place",
                )
            )
    return results


RULE = Rule("E3P609", "acceptance depends on batch or rank", PAGE, _check)
