"""E3P614: ``--speculative-token-map`` with EAGLE3.

``init_token_map`` (``eagle_worker*.py``, 0.5.9 to 0.5.23) ignores it for EAGLE3, with a warning.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule

PAGE = Page(
    checks="Whether `--speculative-token-map` is given together with EAGLE3.",
    why="SGLang ignores it there: the map comes from the draft's `d2t` alone. A server set up with "
    "the map in mind serves another vocabulary.",
    evidence="The two arguments.",
    fix="Leave `--speculative-token-map` out and put the map into the draft as `d2t`.",
    ignore="When `d2t` is the same map.",
)


def _check(situation: Situation) -> list[Result]:
    found = situation.argument("speculative_token_map")
    if not found or situation.algorithm != "EAGLE3":
        return []
    return [
        RULE.finding(
            "warning",
            "--speculative-token-map is ignored with EAGLE3; the map comes from the draft's d2t",
            [Seen("--speculative-token-map", str(found), "arguments")],
            "leave `--speculative-token-map` out and put the map into the draft as `d2t`",
        )
    ]


RULE = StaticRule("E3P614", "token map is ignored", PAGE, _check)
