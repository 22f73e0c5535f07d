"""E3P420: the draft's own embedding is replaced.

``set_embed`` keeps it only if ``target_hidden_size`` differs from ``hidden_size``: ``llama.py``
(which the Llama draft class inherits) and ``kimi_k25_eagle3.py``, 0.5.9 to 0.5.23.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class

PAGE = Page(
    checks="Whether the checkpoint has an `embed_tokens.weight` that SGLang will replace with the "
    "target's, and whether the two are alike. This rule alone reads of large tensors: 256 rows of "
    "each of the two, spread over the vocabulary.",
    why="A draft that trained its own embedding loses it at load time and reads the target's "
    "vectors instead. If it was only copied from the target, nothing is lost.",
    evidence="Name and shape of the tensor, `target_hidden_size`.",
    fix="Nothing, if training froze the embedding; otherwise train again with the target's "
    "embedding (speculators: `embed_requires_grad: false`).",
    ignore="When training used the target's embedding and only the export differs.",
)


def _check(situation: Situation) -> list[Result]:
    stored = situation.draft.tensor("embed_tokens.weight")
    if stored is None or not known_class(situation):
        return []
    width = situation.draft.integer("target_hidden_size")
    if width is not None and width != situation.draft_hidden:
        return []
    rows = situation.embedding_rows
    if rows is not None and not rows.differ:
        return []
    where = "draft checkpoint: embed_tokens.weight"
    target = [situation.target_vocab, situation.hidden]
    evidence = [
        Seen("shape", list(stored.shape), where),
        Seen("target's vocabulary and width", target, "target config"),
        Seen("target_hidden_size", width, key(situation, "target_hidden_size")),
    ]
    if None not in target and list(stored.shape) != target:
        return [
            RULE.finding(
                "warning",
                f"the draft's own embedding {list(stored.shape)} is not the target's {target} and "
                "is replaced by it",
                evidence,
                "train again on the target's embedding (`embed_requires_grad: false`), or check "
                "that this is the right target",
            )
        ]
    if rows is not None:
        return [
            RULE.finding(
                "warning",
                f"the draft has an embedding of its own ({rows.differ} of {rows.compared} rows "
                "compared differ from the target's), and SGLang puts the target's in its place",
                [Seen("rows that differ", rows.differ, where), *evidence],
                "if the draft was trained with it, train again on the target's embedding "
                "(`embed_requires_grad: false`); nothing, if training used the target's and the "
                "exporter wrote another, as TorchSpec once did",
            )
        ]
    return [
        RULE.unknown(
            "the checkpoint has an `embed_tokens.weight`, and SGLang puts the target's in its "
            "place: harmless if the two are equal",
            "give both folders with their weights to `--target` and `--draft`: some rows of "
            "`embed_tokens.weight` are then compared",
        )
    ]


RULE = StaticRule("E3P420", "the draft's own embedding is replaced", PAGE, _check)
