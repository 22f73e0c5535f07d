"""E3P905: the trace lacks what the other rules look at."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen
from sglang_eagle3_probe.rules.evidence import Evidence

PAGE = Page(
    checks="Whether the trace holds layer ids, a draft forward, the vocabulary map, weights and "
    "verify rounds at all.",
    why="Rules are silent on what was never recorded. A clean report of an empty trace would be a "
    "lie.",
    evidence="The presence of each record type in the processes that run the model.",
    fix="Start the server with --enable-probe and speculation on, send a request, and read again.",
    ignore="While the server is still starting.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    models = evidence.models
    if not models:
        return [
            RULE.finding(
                "warning",
                "the trace holds no process that runs the model",
                [Seen("processes", [r.label for r in evidence.ranks], "headers")],
                "wait until the server has loaded; if it has, the scheduler's file is in another "
                "directory or was deleted",
            )
        ]
    algorithms = {rank.algorithm for rank in models if rank.arguments is not None}
    if algorithms == {""}:
        return [
            RULE.finding(
                "warning",
                "the server runs without speculative decoding",
                [Seen("speculative algorithm", None, "arguments.in_force")],
                "start it with --speculative-algorithm EAGLE3 and a draft model",
            )
        ]
    missing = [
        name
        for name, there in (
            ("layer ids", any(r.layer_ids is not None for r in models)),
            ("draft forwards", any(r.drafts for r in models)),
            ("the vocabulary map", any(r.vocab_map is not None for r in models)),
            ("weights", any(r.weights is not None for r in models)),
        )
        if not there and not (name == "layer ids" and algorithms == {"EAGLE"})
    ]
    results: list[Result] = []
    if missing:
        results.append(
            RULE.finding(
                "warning",
                f"the trace says nothing about {', '.join(missing)}, so nothing was checked there",
                [Seen("missing records", missing, "all model processes")],
                "send at least one request; if that was done, look at the seams that are not "
                "patched, below",
            )
        )
    if not evidence.acceptance.rounds:
        results.append(
            RULE.finding(
                "note",
                "no verify round was recorded, so acceptance is not known",
                [Seen("verify rounds", 0, "verify_round")],
                "send requests to the server and read the trace again",
            )
        )
    return results


RULE = Rule("E3P905", "nothing seen", PAGE, _check)
