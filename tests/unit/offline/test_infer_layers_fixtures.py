"""Right on every trained draft, however it is wired; silent on drafts that know nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
import torch
from fixtures import draft_variant, held_out_prompts, materialise
from offline_captures import CaptureTarget
from safetensors.torch import load_file, save_file

from sglang_eagle3_probe.offline.captured import read_requests
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.trained_layers.infer_layers import Inference, infer_layers
from sglang_eagle3_probe.offline.trained_layers.layer_labels import label
from sglang_eagle3_probe.offline.trained_layers.layer_rows import collect
from sglang_eagle3_probe.offline.trained_layers.layer_scores import LayerScorer
from sglang_eagle3_probe.offline.trained_layers.layer_search import LayerSearch

SERVED = {"deepseek": (0, 3, 6), "llama": (2, 4, 5)}
TRAINED = {
    "deepseek-draft-embed": (0, 3, 6),
    "deepseek-draft-default": (2, 5, 7),
    "llama-draft": (2, 4, 5),
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Target -> its folder, and a capture of all prompts with all boundaries."""
    made = {}
    for name, boundaries in SERVED.items():
        place = tmp_path_factory.mktemp(name)
        target = materialise(name, place / "target")
        made[name] = (
            target,
            CaptureTarget(target).write_at_once(
                place / "captures", held_out_prompts(), boundaries=boundaries, new_tokens=96
            ),
        )
    return made


def inferred(
    captures: dict[str, tuple[Path, Path]], draft: Path, name: str, **more: int
) -> Inference:
    target, capture = captures["llama" if name.startswith("llama") else "deepseek"]
    return infer_layers(capture, str(draft), str(target), **more)


@pytest.mark.parametrize("name", TRAINED)
def test_the_boundaries_of_training_are_found(
    name: str, captures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    found = inferred(captures, materialise(name, tmp_path), name)
    assert found.best == TRAINED[name]
    assert found.ranking.decided, [found.boundaries_of(c) for c in found.ranking.possible]
    assert all(slot.possible == (slot.boundary,) for slot in found.slots)
    same = found.best == found.served
    assert (found.answer, found.exit_code) == (("as served", 0) if same else ("differs", 1))
    assert found.quick + found.thorough < found.whole / 2


@pytest.mark.parametrize(
    ("name", "order"),
    [("deepseek-draft-embed", (1, 2, 0)), ("deepseek-draft-default", (2, 1, 0))],
)
def test_blocks_of_fc_in_another_order_give_that_order(
    name: str,
    order: Sequence[int],
    captures: dict[str, tuple[Path, Path]],
    tmp_path: Path,
) -> None:
    found = inferred(captures, draft_variant(name, tmp_path, fc_block_order=order), name)
    assert found.best == tuple(TRAINED[name][i] for i in order)
    assert found.ranking.decided
    assert found.answer == "differs"


def with_noise(name: str, folder: Path, part: str) -> Path:
    """The draft with noise of the same size in its matrices named so."""
    materialise(name, folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(1)
    for key, weight in weights.items():
        if weight.is_floating_point() and weight.dim() == 2 and part in key:
            weights[key] = torch.randn_like(weight) * weight.std()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("part", "chance"), [("", False), ("lm_head", False), ("fc", True)], ids=["all", "head", "fc"]
)
def test_random_drafts_are_not_decided(
    part: str, chance: bool, captures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """With noise in fc alone this draft beats the guess by frequency, from the token it reads."""
    name = "deepseek-draft-default"
    found = inferred(captures, with_noise(name, tmp_path, part), name)
    assert (found.answer, found.exit_code) == ("undecided", 2)
    assert found.ranking.over_chance.clear == chance
    assert not found.ranking.over_shuffled.clear
    if chance:  # otherwise the answer is that it is no better than the guess
        assert not found.ranking.over_shuffled.vague
    assert not found.ranking.decided


def test_little_data_leaves_neighbours_open_and_rules_the_rest_out(
    captures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    name = "deepseek-draft-default"
    found = inferred(captures, materialise(name, tmp_path), name, limit=300)
    possible = [found.boundaries_of(c) for c in found.ranking.possible]
    assert not found.ranking.decided
    assert TRAINED[name] in possible
    assert {combination[2] for combination in possible} <= {6, 7, 8, 9}
    # The served (0, 3, 6) is out all the same, which is what a user needs to know first.
    assert found.answer == "differs"


def test_without_a_final_state_the_tokens_of_the_answers_are_the_labels(tmp_path: Path) -> None:
    target = materialise("llama", tmp_path / "target")
    capture = CaptureTarget(target).write_at_once(
        tmp_path / "captures",
        held_out_prompts(12),
        boundaries=(2, 4, 5),
        new_tokens=64,
        final_norm=False,
    )
    draft = materialise("llama-draft", tmp_path / "draft")
    found = infer_layers(capture, str(draft), str(target))
    assert "tokens of the answers" in found.labels
    # Rows whose next but one token is of the answer; the prompts' own tokens are nobody's choice.
    assert 0.9 * 12 * 64 < found.rows_scored <= 12 * 64
    assert (2, 4, 5) in [found.boundaries_of(c) for c in found.ranking.possible]


@pytest.mark.parametrize("name", ["deepseek-draft-embed", "llama-draft"])
def test_trying_everything_finds_nothing_better(
    name: str, captures: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    target, capture = captures["llama" if name.startswith("llama") else "deepseek"]
    draft = ReferenceDraft.load(materialise(name, tmp_path), target=target)
    with torch.inference_mode():
        rows = collect(read_requests(capture), limit=200)
        scorer = LayerScorer(draft, rows, label(rows, draft))
        search = LayerSearch(
            3,
            scorer.columns,
            lambda columns: scorer.search_score(columns, quick=True),
            lambda columns: scorer.search_score(columns, quick=False),
        )
        found = search.run([(1, 2, 3)])
        count = len(search.scored)
        everything = search.ranked(permutations(range(scorer.columns), 3))
    assert everything[0] == found
    assert count < len(everything) / 4
