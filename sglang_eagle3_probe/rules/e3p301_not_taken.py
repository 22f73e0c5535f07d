"""E3P301: tensors of the checkpoint that nobody took."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Tensor names in the draft's checkpoint that no parameter and no map took (t2d, which "
    "SGLang never reads, excepted).",
    why="SGLang drops unknown names without a message. A dropped norm, bias or layer means that "
    "the served draft computes something else than the trained one.",
    evidence="`weights.not_taken`.",
    fix="Rename the tensors to what this SGLang's draft class reads, or use an SGLang that knows "
    "the structure (fc_norm from 0.5.12, norm_before_fc's input_norm from 0.5.17, layers.0.* from "
    "0.5.12). q/k norms and attention biases are read by no release up to 0.5.23.",
    ignore="When the tensors are left-overs of training that the forward does not use.",
)


def shorten(names: list[str], limit: int = 6) -> str:
    """A list of names that fits a line."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _check(rank: RankEvidence) -> list[Result]:
    weights = rank.weights
    if weights is None or not weights.not_taken:
        return []
    count = len(weights.not_taken)
    return [
        RULE.finding(
            "error",
            f"{count} tensor{'s' if count > 1 else ''} of the draft's checkpoint went nowhere: "
            f"{shorten(weights.not_taken)}",
            [
                Seen("names not taken", weights.not_taken, "weights.not_taken"),
                Seen("draft class", weights.model_class, "weights.model_class"),
            ],
            f"rename them to what {weights.model_class or 'the draft class'} reads, or use an "
            "SGLang whose draft class has these parts; `sglang-eagle3-probe explain E3P301` lists "
            "since when",
        )
    ]


RULE = Rule("E3P301", "checkpoint tensors nobody took", PAGE, per_rank(_check))
