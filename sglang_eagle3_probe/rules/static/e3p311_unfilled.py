"""E3P311: parameters that no tensor fills.

Neither draft class checks completeness after ``load_weights`` (0.5.9 to 0.5.23). Linear layers of
SGLang start as ``torch.empty``, ``fc`` of the llama class as a random ``nn.Linear``, norms as ones.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, is_mla, since, some
from sglang_eagle3_probe.rules.static.draft_module import missing, quantised, split

PAGE = Page(
    checks="Every parameter that the draft class builds for this config and release has a tensor "
    "in the checkpoint. The embedding may be absent when the target's takes its place, the head "
    "when `draft_vocab_size` is null.",
    why="A missing matrix keeps whatever memory held, or random numbers in the case of `fc`; the "
    "server starts and the draft proposes noise. A missing norm stays at ones.",
    evidence="Names in the safetensors headers against the class's parameters.",
    fix="Export the checkpoint again with these tensors: `fc.weight`, `norm.weight`, "
    "`lm_head.weight`, and `midlayer.*` (or `layers.0.*` from 0.5.12). If the shard index is "
    "stale, add the missing shard to `model.safetensors.index.json`.",
    ignore="A norm that is all ones by design.",
)


def _explained(situation: Situation) -> bool:
    """Whole families lost under another name have rules of their own."""
    _, left = split(situation)
    if is_mla(situation):
        return any(name.startswith("model.") for name in left)
    return not since(situation, "0.5.12") and any("layers.0." in name for name in left)


def _check(situation: Situation) -> list[Result]:
    if quantised(situation) or _explained(situation):
        return []
    matrices, norms = missing(situation)
    matrices = [n for n in matrices if not n.endswith(".bias")]
    norms = [n for n in norms if not n.startswith(("fc_norm", "input_norm"))]
    extra = [n for n in [*matrices, *norms] if n.startswith("layers.") and n[7] != "0"]
    matrices = [n for n in matrices if n not in extra]
    norms = [n for n in norms if n not in extra]
    if not matrices and not norms:
        return []
    names = [*matrices, *norms]
    effect = "uninitialised or random" if matrices else "at ones"
    return [
        RULE.finding(
            "error" if matrices else "warning",
            f"the draft's checkpoint lacks {some(names)}: SGLang {situation.release} serves them "
            f"{effect} and says nothing",
            [
                Seen("parameters without a tensor", names, "draft checkpoint"),
                Seen("draft class", situation.draft_class, "models/ of this release"),
            ],
            f"export the draft again with {some([f'`{n}`' for n in names])}",
        )
    ]


RULE = StaticRule("E3P311", "draft parameters that nothing fills", PAGE, _check)
