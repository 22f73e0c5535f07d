"""Trees of a draft in float32 against those of the same draft in bfloat16, and of another one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

torch = pytest.importorskip("torch")

from fixtures import materialise  # noqa: E402

from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft  # noqa: E402
from sglang_eagle3_probe.offline.drafts.tree_drafting import (  # noqa: E402
    Rounding,
    Tree,
    paths,
    tree,
)

STEPS, TOPK, NODES, ROWS = 3, 4, 12, 64
TIE = 4 * 2.0**-8


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> ReferenceDraft:
    place = tmp_path_factory.mktemp("models")
    folder = materialise("llama-draft", place / "draft")
    return ReferenceDraft.load(folder, target=materialise("llama", place / "target"))


def grown(draft: ReferenceDraft, dtype: torch.dtype = torch.float32) -> Tree:
    width = draft.plan.slots * draft.plan.target_hidden
    seed = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 2000, (ROWS + 1,), generator=seed)
    aux = torch.randn(ROWS, width, generator=seed)
    rows = torch.arange(8, ROWS)
    other = ReferenceDraft(draft.weights, draft.plan, dtype)
    first, context = other.begin(ids[1:], other.features(aux), torch.arange(ROWS), rows)
    return tree(other, context, first, rows, rows, STEPS, TOPK, NODES)


def compared(one: Tree, other: Tree) -> tuple[int, int, int]:
    """Depths of all trees that are the same, that rounding explains, and that it does not."""
    same = explained = not_explained = 0
    for row in range(len(one.node_ids)):
        mine = paths(one.node_ids[row], one.parents[row])
        theirs = paths(other.node_ids[row], other.parents[row])
        limits = Rounding(one.candidates, row, TIE, mine, theirs)
        for step in range(STEPS):
            if mine[step : step + 1] == theirs[step : step + 1]:
                same += 1
            elif limits.explains(step):
                explained += 1
            else:
                not_explained += 1
    return same, explained, not_explained


def test_rounding_explains_what_bfloat16_does_to_trees(draft: ReferenceDraft) -> None:
    same, explained, not_explained = compared(grown(draft), grown(draft, torch.bfloat16))
    assert explained > 5  # or the test would say nothing
    assert same > explained
    # A verdict needs surely more than 2 in 100; a cascade of several ties is not followed.
    assert not_explained <= 1


def test_rounding_does_not_explain_another_draft(draft: ReferenceDraft) -> None:
    plain = grown(draft)
    for change in ({"last_norm": "none"}, {"norm_output": True}, {"slot_order": (1, 0, 2)}):
        same, explained, not_explained = compared(plain, grown(draft.varied(**change)))
        assert not_explained > explained, change
        # Step 0 does not tell of norm_output.
        assert not_explained > 0.2 * (same + explained + not_explained), change


def test_candidates_are_what_the_tree_was_picked_from(draft: ReferenceDraft) -> None:
    found = grown(draft)
    candidates = found.candidates
    assert candidates.ids.shape == (ROWS - 8, TOPK + TOPK * TOPK * (STEPS - 1))
    assert bool((candidates.taken.sum(1) == NODES - 1).all())
    lowest = torch.where(candidates.taken, candidates.scores, torch.inf).amin(1)
    assert torch.equal(lowest, candidates.last_taken)
    highest_left = torch.where(candidates.taken, -torch.inf, candidates.scores).amax(1)
    assert bool((highest_left <= lowest).all())
    below = candidates.above >= 0
    parents = candidates.scores.gather(1, candidates.above.clamp_min(0))
    assert bool((parents >= candidates.scores)[below].all())
    taken_above = candidates.taken.gather(1, candidates.above.clamp_min(0))
    assert bool(taken_above[below & candidates.taken].all())
    # Every candidate that was gone on with has a bound on what it left out, and no other.
    expanded = torch.zeros_like(candidates.taken)
    for row in range(len(expanded)):
        expanded[row, candidates.above[row][below[row]]] = True
    assert torch.equal(torch.isfinite(candidates.left_out[:, 1:]), expanded)
    assert bool((candidates.left_out[:, 0] >= 0).all())
