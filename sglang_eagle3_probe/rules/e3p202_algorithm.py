"""E3P202: an EAGLE-3 draft is served with the algorithm EAGLE."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="The speculative algorithm in force against what the draft is: its architecture name, a "
    "d2t map, an `fc` wider than one hidden state.",
    why="With EAGLE instead of EAGLE3, SGLang captures no aux states, skips `fc`, does not pick up "
    "the vocabulary map and puts the target's head in place of the draft's. Nothing warns; accept "
    "length is 1.00.",
    evidence="`arguments.in_force`, `arguments.draft_architecture`, `vocab_map.present`, "
    "`draft_forward.fc_in_features`.",
    fix="Start the server with --speculative-algorithm EAGLE3.",
    ignore="Never with an EAGLE-3 draft.",
)


def _check(rank: RankEvidence) -> list[Result]:
    arguments = rank.arguments
    if arguments is None or rank.algorithm not in {"EAGLE", "NEXTN"}:
        return []
    signs: list[Seen] = []
    architecture = arguments.draft_architecture
    if "eagle3" in architecture.lower():
        signs.append(Seen("draft architecture", architecture, "arguments.draft_architecture"))
    if rank.vocab_map is not None and rank.vocab_map.present:
        signs.append(Seen("d2t in the checkpoint", True, "vocab_map.present"))
    fc, hidden = rank.fc_in_features, arguments.target_hidden_size
    # EAGLE-1's fc reads embedding and hidden state, 2 wide; three and more slots are EAGLE-3.
    if fc is not None and hidden and fc >= 3 * hidden:
        signs.append(Seen("fc input width", fc, "draft_forward.fc_in_features"))
    if not signs:
        return []
    return [
        RULE.finding(
            "error",
            f"the draft is EAGLE-3 but --speculative-algorithm {rank.algorithm} is in force: no "
            "aux states, no fc, no vocabulary map",
            [Seen("algorithm in force", rank.algorithm, "arguments.in_force"), *signs],
            "start the server with --speculative-algorithm EAGLE3",
        )
    ]


RULE = Rule("E3P202", "wrong algorithm for an EAGLE-3 draft", PAGE, per_rank(_check))
