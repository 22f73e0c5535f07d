"""E3P216: EAGLE3 with pipeline parallelism.

An assertion refuses every algorithm but, from 0.5.21, EAGLE: ``server_args.py`` (read in 0.5.9,
0.5.12.post1, 0.5.14 and 0.5.17), ``arg_groups/validation_hook.py`` (0.5.20, 0.5.21 and 0.5.23).
Most setters leave ranks but the last alone, and each rank captures its own layers only.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, eagle3_served, whole

PAGE = Page(
    checks="`--pp-size` above 1 with EAGLE3.",
    why="SGLang refuses to start. With EAGLE in place of EAGLE3 newer releases start, but then no "
    "aux states are captured at all (E3P210).",
    evidence="The two arguments.",
    fix="Start the server with `--pp-size 1` and spread the target with `--tp-size` instead.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    stages = whole(situation, "pp_size")
    if stages is None or stages < 2 or not eagle3_served(situation):
        return []
    return [
        RULE.finding(
            "error",
            f"SGLang {situation.release} refuses EAGLE3 with {stages} pipeline stages, and aux "
            "states of the earlier ones would not reach the draft",
            [
                Seen("--pp-size", stages, "arguments"),
                Seen("algorithm", situation.algorithm or "EAGLE3", "--speculative-algorithm"),
            ],
            "start the server with `--pp-size 1` and spread the target with `--tp-size`",
        )
    ]


RULE = StaticRule("E3P216", "EAGLE3 with pipeline parallelism", PAGE, _check)
