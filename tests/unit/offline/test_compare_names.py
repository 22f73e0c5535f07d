"""Each fault, put into a trained target's states, is called by its name; right ones are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures import materialise
from fixtures.prompts import held_out_prompts, held_out_sample
from offline_captures import CaptureTarget
from trained_files import SLOTS, Scene

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.captured import read_requests
from sglang_eagle3_probe.offline.comparing import matching
from sglang_eagle3_probe.offline.comparing.comparison import Comparison, compare
from sglang_eagle3_probe.offline.comparing.finding_texts import FIXES, MEANINGS, TITLES
from sglang_eagle3_probe.offline.comparing.target_states import open_target
from sglang_eagle3_probe.offline.comparing.training_states.found import Search

TOKENS = 128


@dataclass
class Scenes:
    """One target at several precisions."""

    right: Scene
    bits: dict[int, Scene] = field(default_factory=dict)

    def __call__(self, bits: int = 0) -> Scene:
        if not bits:
            return self.right
        if bits not in self.bits:
            self.bits[bits] = Scene(self.right.folder, self.right.ids, quantised_bits=bits)
        return self.bits[bits]


@pytest.fixture(scope="module", params=["llama", "deepseek"])
def scenes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    folder = tmp_path_factory.mktemp(request.param)
    return Scenes(Scene(materialise(request.param, folder), held_out_sample()[:TOKENS]))


def compared(
    scene: Scene,
    folder: Path,
    *,
    served: torch.Tensor | None = None,
    trained: torch.Tensor | None = None,
    trainer: Scene | None = None,
    target: Path | None = None,
    **capture: Any,
) -> Comparison:
    captures = scene.capture(folder / "captures", served, **capture)
    states = (trainer or scene).specforge(folder / "states", trained)
    return compare(
        read_requests(captures),
        Search(states, scene.hidden),
        open_target(str(target)) if target is not None else None,
    )


def names(found: Comparison) -> list[tuple[str, tuple[int, ...]]]:
    return [(finding.name, finding.slots) for finding in found.findings]


def with_slot(scene: Scene, slot: int, rows: torch.Tensor) -> torch.Tensor:
    aux = scene.aux()
    aux[:, slot] = rows
    return aux


# -- right states --


@pytest.mark.parametrize("bits", [0, 8])
def test_right_states_are_alike(scenes: Scenes, bits: int, tmp_path: Path) -> None:
    found = compared(scenes(bits), tmp_path, trainer=scenes())
    assert (found.answer, names(found)) == ("alike", [])
    assert found.trained_boundaries == SLOTS


def test_bfloat16_and_other_boundaries_not_captured_are_alike(
    scenes: Scenes, tmp_path: Path
) -> None:
    found = compared(scenes(), tmp_path, dtype=torch.bfloat16, all_boundaries=False)
    assert found.answer == "alike"
    assert 0 < found.slots[0].error.median < 0.01
    assert any("cannot be told from noise" in note for note in found.notes)


def test_a_few_huge_tokens_do_not_hide_a_difference(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes()
    trained = scene.aux()
    trained[:2] *= 1000
    served = trained.clone()
    served[2:, 1] = scene.boundaries[2:, 5]
    found = compared(scene, tmp_path, served=served, trained=trained)
    assert ("other_boundary_served", (1,)) in names(found)


# -- order and layers --


def test_slots_in_another_order(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, slots=(6, 2, 4))
    assert names(found) == [("permuted", (0, 1, 2))]
    assert found.trained_boundaries == SLOTS
    assert "PROBE_LAYER_IDS=1,3,5" in found.findings[0].fix


def test_the_embedding_in_another_place_of_the_order(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, slots=(0, 3, 6), trained=scenes().aux((3, 6, 0)))
    assert names(found) == [("permuted", (0, 1, 2))]
    assert "PROBE_LAYER_IDS=2,5,-1" in found.findings[0].fix


def test_requests_with_all_boundaries_are_preferred(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes()
    states = scene.specforge(tmp_path / "states")
    requests = [
        *read_requests(scene.capture(tmp_path / "a", slots=(3, 5, 7), all_boundaries=False)),
        *read_requests(scene.capture(tmp_path / "b", slots=(3, 5, 7))),
        *read_requests(scene.capture(tmp_path / "c", slots=(3, 5, 7))),
    ]
    found = compare(requests, Search(states, scene.hidden))
    assert [alignment.rows for alignment in found.alignments] == [TOKENS, TOKENS]
    assert names(found) == [("one_late", (0, 1, 2))]
    assert any(note.startswith("1 matching requests were left out") for note in found.notes)


def test_rows_are_bounded_over_all_requests(
    scenes: Scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scenes()
    states = scene.specforge(tmp_path / "states")
    captures = scene.capture(tmp_path / "captures", slots=(3, 5, 7))
    monkeypatch.setattr(matching, "MOST_ROWS", 200)
    requests = [request for _ in range(3) for request in read_requests(captures)]
    found = compare(requests, Search(states, scene.hidden))
    assert [alignment.rows for alignment in found.alignments] == [TOKENS, 200 - TOKENS]
    assert names(found) == [("one_late", (0, 1, 2))]
    assert any("compared on 200 rows" in note for note in found.notes)


def test_slots_in_another_order_than_the_server_says(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, served=scenes().aux((6, 2, 4)))
    assert names(found) == [("permuted", (0, 1, 2))]
    assert {slot.side for slot in found.slots} == {"served"}


@pytest.mark.parametrize(("step", "name"), [(1, "one_late"), (-1, "one_early")])
@pytest.mark.parametrize("bits", [0, 4])
def test_ids_in_the_wrong_unit(
    scenes: Scenes, step: int, name: str, bits: int, tmp_path: Path
) -> None:
    slots = tuple(h + step for h in SLOTS)
    found = compared(scenes(bits), tmp_path, trainer=scenes(), slots=slots)
    assert names(found) == [(name, (0, 1, 2))]
    assert found.trained_boundaries == SLOTS
    assert "PROBE_LAYER_IDS=1,3,5" in found.findings[0].fix


def test_one_slot_of_three_is_a_layer_off(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, slots=(2, 5, 6))
    assert names(found) == [("other_boundary_trained", (1,))]
    assert found.trained_boundaries == SLOTS


def test_without_other_boundaries_a_neighbour_is_undecided(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, slots=(3, 5, 7), all_boundaries=False)
    assert found.answer == "undecided"
    assert names(found) == [("undecided", (0, 1, 2))]
    assert found.exit_code == 1


def test_the_embedding_was_trained(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, trained=scenes().aux((0, 4, 6)))
    assert names(found) == [("embedding_trained", (0,))]
    assert "PROBE_LAYER_IDS=-1,3,5" in found.findings[0].fix


def test_the_embedding_is_known_from_the_targets_weights(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes()
    trained = scene.aux((0, 4, 6))
    known = {"trained": trained, "all_boundaries": False}
    assert names(compared(scene, tmp_path / "without", **known)) == [("undecided", (0,))]
    found = compared(scene, tmp_path / "with", target=scene.folder, **known)
    assert names(found) == [("embedding_trained", (0,))]


def test_the_embedding_is_served_under_another_name(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, served=scenes().aux((0, 4, 6)))
    assert names(found) == [("embedding_served", (0,))]


@pytest.mark.parametrize("side", ["served", "trained"])
def test_the_last_state_in_a_slot(scenes: Scenes, side: str, tmp_path: Path) -> None:
    aux = with_slot(scenes(), 2, scenes().final_norm)
    found = compared(scenes(), tmp_path, **{side: aux})  # type: ignore[arg-type]
    assert names(found) == [(f"last_state_{side}", (2,))]


def test_another_number_of_slots(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, trained=scenes().aux((2, 4)))
    assert names(found) == [("slot_count", ())]
    assert "2 states were saved for training, 3 are served" in found.findings[0].evidence


# -- right layer, wrong tensor --


@pytest.mark.parametrize("side", ["served", "trained"])
def test_after_the_norm_instead_of_before(scenes: Scenes, side: str, tmp_path: Path) -> None:
    aux = with_slot(scenes(), 1, scenes().normed[4])
    found = compared(scenes(), tmp_path, **{side: aux})  # type: ignore[arg-type]
    assert names(found) == [(f"normed_{side}", (1,))]
    assert found.slots[1].explained is not None
    assert found.slots[1].explained < 1e-4


@pytest.mark.parametrize("side", ["served", "trained"])
def test_the_residual_is_missing(scenes: Scenes, side: str, tmp_path: Path) -> None:
    aux = with_slot(scenes(), 1, scenes().mlp[3])
    found = compared(scenes(), tmp_path, **{side: aux})  # type: ignore[arg-type]
    assert names(found) == [("missing_residual", (1,))]
    assert found.slots[1].side == side


def test_overwritten_within_the_next_layer(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes()
    aux = with_slot(scene, 1, scene.boundaries[:, 4] + scene.attention[4])
    found = compared(scene, tmp_path, served=aux)
    assert names(found) == [("overwritten", (1,))]


@pytest.mark.parametrize("side", ["served", "trained"])
def test_one_ranks_part_of_the_sum(scenes: Scenes, side: str, tmp_path: Path) -> None:
    scene = scenes()
    aux = torch.stack(
        [
            scene.boundaries[:, h - 1] + scene.attention[h - 1] + scene.half_of_mlp(h - 1)
            for h in SLOTS
        ],
        dim=1,
    )
    found = compared(scene, tmp_path, tp_size=2, **{side: aux})  # type: ignore[arg-type]
    assert names(found) == [(f"partial_sum_{side}", (0, 1, 2))]


def test_a_known_fault_of_the_class_is_told_with_it(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes()
    aux = with_slot(scene, 1, scene.boundaries[:, 4] + scene.attention[4])
    found = compared(scene, tmp_path, served=aux, target_class="Gemma4ForCausalLM", sglang="0.5.20")
    assert "overwritten within the layer" in found.findings[0].evidence


def test_a_turned_basis(scenes: Scenes, tmp_path: Path) -> None:
    torch.manual_seed(0)
    turn = torch.linalg.qr(torch.randn(scenes().hidden, scenes().hidden))[0]
    found = compared(scenes(), tmp_path, trained=scenes().aux() @ turn)
    assert names(found) == [("turned", (0, 1, 2))]
    shuffled = scenes().aux()[..., torch.randperm(scenes().hidden)]
    assert names(compared(scenes(), tmp_path, trained=shuffled)) == [("turned", (0, 1, 2))]


def test_one_factor(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, trained=scenes().aux() * 2.5)
    assert names(found) == [("scaled", (0, 1, 2))]
    assert "served = 0.4 x trained" in found.findings[0].evidence


def test_a_quantised_target_is_noise_of_its_size(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(4), tmp_path, trainer=scenes())
    assert names(found) == [("noise", (0, 1, 2))]
    assert all(0.05 < slot.error.median < 0.2 for slot in found.slots)


def test_too_much_noise_is_undecided_not_a_name(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(3), tmp_path, trainer=scenes(), slots=(3, 5, 7))
    assert names(found) == [("undecided", (0, 1, 2))]
    random = compared(scenes(), tmp_path, trained=torch.randn_like(scenes().aux()))
    assert names(random) == [("undecided", (0, 1, 2))]


# -- rows --


def test_stale_rows(scenes: Scenes, tmp_path: Path) -> None:
    aux = scenes().aux()
    aux[60:80] = scenes().aux()[50:70]
    found = compared(scenes(), tmp_path, served=aux)
    assert names(found) == [("moved_rows", (0, 1, 2))]
    assert "10 tokens earlier" in found.findings[0].evidence
    assert "positions 60, 61" in found.findings[0].evidence


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
def test_rows_shifted_against_their_ids(scenes: Scenes, shift: int, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path, trained=torch.roll(scenes().aux((4, 2, 6)), shift, 0))
    assert found.alignments[0].row_shift == shift
    assert names(found) == [("row_shift", ()), ("permuted", (0, 1))]


def test_a_row_that_is_not_finite_is_one_row(scenes: Scenes, tmp_path: Path) -> None:
    aux = scenes().aux()
    aux[5, 1] = torch.nan
    found = compared(scenes(), tmp_path, served=aux)
    assert [slot.name for slot in found.slots] == ["alike"] * 3
    assert "slot 1: 1 of 128 rows are far off (positions 5)" in found.notes


def test_a_number_of_wrong_rows_is_not_alike(scenes: Scenes, tmp_path: Path) -> None:
    aux = scenes().aux()
    aux[20:30, 1] = torch.randn(10, scenes().hidden)
    found = compared(scenes(), tmp_path, served=aux)
    assert names(found) == [("undecided", (1,))]
    assert "10 rows are far off, at positions 20, 21" in found.findings[0].evidence


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 0.0])
@pytest.mark.parametrize("side", ["served", "trained"])
def test_slots_that_hold_nothing(scenes: Scenes, side: str, value: float, tmp_path: Path) -> None:
    aux = with_slot(scenes(), 1, torch.full((TOKENS, scenes().hidden), value))
    found = compared(scenes(), tmp_path, **{side: aux})  # type: ignore[arg-type]
    assert names(found) == [(f"empty_{side}", (1,))]
    assert found.trained_boundaries == (2, None if side == "trained" else 4, 6)


# -- where the text is not the same --


def test_a_text_with_another_beginning_is_compared_with_a_warning(
    scenes: Scenes, tmp_path: Path
) -> None:
    found = compared(scenes(), tmp_path, prefix=[7] * 20, start=10)
    [alignment] = found.alignments
    assert (alignment.first_position, alignment.first_id) == (20, 10)
    assert (alignment.tokens, alignment.same_beginning) == (TOKENS - 10, False)
    assert any("the text before them is not the same" in note for note in found.notes)


def test_noise_after_another_beginning_is_undecided(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(4), tmp_path, trainer=scenes(), prefix=[7] * 20)
    assert names(found) == [("undecided", (0, 1, 2))]


def test_too_few_common_tokens_are_refused(scenes: Scenes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^0 tokens .* longest common run of ids is 0"):
        compared(scenes(), tmp_path / "a", prefix=[7] * 40, start=TOKENS - 12)
    found = compared(scenes(), tmp_path / "b", prefix=[7] * 40, start=TOKENS - 16)
    assert found.alignments[0].rows == 16
    assert any("16 tokens are few" in note for note in found.notes)


def test_positions_from_the_prefix_cache_are_left_out(scenes: Scenes, tmp_path: Path) -> None:
    found = compared(scenes(), tmp_path)
    request = next(iter(read_requests(tmp_path / "captures")))
    known = request.aux_known.clone()
    known[:40] = False
    object.__setattr__(request, "aux_known", known)
    again = compare([request], Search(tmp_path / "states", scenes().hidden))
    assert (found.alignments[0].rows, again.alignments[0].rows) == (TOKENS, TOKENS - 40)
    assert again.alignments[0].same_beginning
    assert again.answer == "alike"


def test_another_target_is_refused(scenes: Scenes, tmp_path: Path) -> None:
    other = "deepseek" if scenes().layers == 8 else "llama"
    folder = materialise(other, tmp_path / "other")
    with pytest.raises(CheckpointError, match="has a hidden size of"):
        compared(scenes(), tmp_path, target=folder)


def test_verify_rounds_are_told_from_the_prompt(scenes: Scenes, tmp_path: Path) -> None:
    target = CaptureTarget(scenes().folder)
    captures = target.write(
        tmp_path / "captures", held_out_prompts(1), boundaries=SLOTS, new_tokens=40
    )
    [request] = read_requests(captures)
    prompt, known = request.info.prompt_tokens, int(request.aux_known.sum())
    scene = Scene(scenes().folder, request.token_ids[:known].tolist())
    search = Search(scene.specforge(tmp_path / "states"), scene.hidden)
    found = compare([request], search)
    assert found.answer == "alike"
    assert int(found.pairs.decoded.sum()) == known - prompt > 30
    request.aux[prompt:] *= 3  # what only small batches get wrong
    found = compare([request], search)
    slot = found.slots[0]
    assert found.answer != "alike"
    assert (slot.prompt_error, slot.decoded_error) == (
        pytest.approx(0, abs=1e-4),
        pytest.approx(2, rel=1e-3),
    )


def test_every_name_has_its_words_and_its_line_in_the_docs() -> None:
    assert set(TITLES) == set(MEANINGS) == set(FIXES)
    page = (Path(__file__).parents[3] / "docs" / "compare.md").read_text(encoding="utf-8")
    assert [name for name in TITLES if f"`{name}`" not in page] == []
