"""Trees as SGLang's own functions select them, over made-up distributions; a worker.

Reads ``tables.safetensors`` (next [V, V], the draft's probabilities after each token; roots [R]),
and writes ``trees-K-D.safetensors`` for some topk and draft tokens: node_ids, node_scores (best
first), step_ids, step_scores.
"""

from __future__ import annotations

import sys
from pathlib import Path

STEPS = 3
SHAPES = ((2, 5), (4, 8), (3, 20))


def main(folder: Path) -> None:
    """Every shape."""
    import torch
    from safetensors.torch import load_file, save_file
    from sglang.srt.speculative.eagle_utils import organize_draft_results
    from sglang.srt.speculative.spec_utils import select_top_k_tokens

    tables = load_file(folder / "tables.safetensors")
    for topk, nodes in SHAPES:
        best = tables["next"][tables["roots"]].topk(topk, dim=-1)
        values, index = best.values, best.indices
        hidden = torch.zeros(len(values), 1)
        scores = None
        lists: tuple[list, list, list] = ([], [], [])  # type: ignore[type-arg]
        step_ids, step_scores = [], []
        for step in range(STEPS):
            ids, hidden, scores, info = select_top_k_tokens(
                step, values, index, hidden, scores, topk
            )
            for kept, entry in zip(lists, info, strict=True):
                kept.append(entry)
            step_ids.append(ids.view(-1, topk))
            step_scores.append(scores)
            best = tables["next"][ids].topk(topk, dim=-1)
            values, index = best.values, best.indices
        _, _, tokens = organize_draft_results(*lists, nodes)
        save_file(
            {
                "node_ids": tokens.contiguous(),
                "node_scores": torch.cat([s.flatten(1) for s in lists[0]], 1)
                .topk(nodes - 1)
                .values.contiguous(),
                "step_ids": torch.stack(step_ids, 1).contiguous(),
                "step_scores": torch.stack(step_scores, 1).contiguous(),
            },
            folder / f"trees-{topk}-{nodes}.safetensors",
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
