"""E3P117: the target's class cannot hand on aux states.

``configure_aux_hidden_state_capture`` (0.5.23; the model runner before) raises a ``ValueError`` for
a class without ``set_eagle3_layers_to_capture``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import Unserved, known_faults
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, target_key
from sglang_eagle3_probe.rules.static.layer_ids import asked

PAGE = Page(
    checks="Whether the target's class has `set_eagle3_layers_to_capture` in this release, and "
    "whether the list it sets is ever looked at.",
    why="Without the setter EAGLE3 stops at start. Qwen3.5's vision wrappers (0.5.11 to 0.5.21) "
    "and MiniMax-M3 (0.5.16 and 0.5.17) set a list that their layers never see, so nothing "
    "is captured.",
    evidence="The target's architecture and the release.",
    fix="Use a release of SGLang whose class has the setter (the finding names it where known), or "
    "serve without `--speculative-algorithm EAGLE3`.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    found = asked(situation)
    if found is None:
        return []
    where = [
        Seen(
            "target architecture",
            situation.target_class,
            target_key(situation, "architectures"),
        )
    ]
    fix = "use a release whose class has the setter, or drop `--speculative-algorithm EAGLE3`"
    if isinstance(found, Unserved):
        if found.certain:
            return [RULE.finding("error", found.why, where, fix)]
        return [
            RULE.unknown(
                found.why,
                "start the server with `--enable-probe` and read the layer ids in its report",
            )
        ]
    silent = [
        f for f in known_faults(situation.target_class, situation.release) if f.captures_nothing
    ]
    return [
        RULE.finding(
            "error",
            f"{situation.target_class} of SGLang {situation.release}: {fault.what}",
            where,
            f"upgrade SGLang beyond {'.'.join(map(str, fault.until))}, or drop "
            "`--speculative-algorithm EAGLE3`",
        )
        for fault in silent
    ]


RULE = StaticRule("E3P117", "the target's class cannot capture aux states", PAGE, _check)
