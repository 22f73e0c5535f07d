"""The pieces of infer-layers: products of fc, other numbers of slots, the search, the intervals."""

from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path

import pytest
import torch

from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.trained_layers.infer_layers import infer_layers
from sglang_eagle3_probe.offline.trained_layers.layer_rows import collect
from sglang_eagle3_probe.offline.trained_layers.layer_search import Columns, LayerSearch
from sglang_eagle3_probe.offline.trained_layers.layer_serving import serving
from sglang_eagle3_probe.offline.trained_layers.layer_verdict import Margin, clusters_of, margin
from sglang_eagle3_probe.offline.trained_layers.slot_parts import KeptParts, SlotParts

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

from offline_bench.infer_layers import make

SMALL = {"boundaries": 8, "tokens": 240, "hidden": 64, "vocabulary": 300}


@pytest.mark.parametrize(
    ("truth", "settings"),
    [
        ((5,), {}),
        ((6, 1), {}),
        ((0, 4, 2), {"norm_before_fc": True}),
        ((1, 3, 5), {"fc_norm": True}),
        ((0, 2, 4, 6), {}),
        ((7, 0, 2, 3, 5), {"norm_before_fc": True, "fc_norm": True}),
    ],
    ids=str,
)
def test_any_number_of_slots_and_any_norm(
    truth: tuple[int, ...], settings: dict[str, bool], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    make(tmp_path, truth, **SMALL, **settings)
    draft = ReferenceDraft.load(tmp_path / "draft", target=tmp_path / "target")
    if len(truth) > 1:
        states = torch.randn(5, 8, 64) * torch.linspace(0.5, 4, 8)[:, None]
        parts = SlotParts(draft, 64)
        expected = draft.features(states[:, list(truth)].flatten(1))
        torch.testing.assert_close(parts.features(states, truth), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            KeptParts(parts, states).features(truth), expected, rtol=1e-4, atol=1e-4
        )
    found = infer_layers(tmp_path / "captures", str(tmp_path / "draft"), str(tmp_path / "target"))
    assert found.best == truth
    assert found.ranking.decided
    assert found.answer == "as served"


def test_a_draft_for_another_width_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", (1, 3, 5), **SMALL)
    make(tmp_path / "b", (1, 3, 5), **{**SMALL, "hidden": 128})
    with pytest.raises(CheckpointError, match="the captured states are 64 wide, the draft"):
        infer_layers(
            tmp_path / "a" / "captures", str(tmp_path / "b" / "draft"), str(tmp_path / "b/target")
        )


# -- search -------------------------------------------------------------------------------------


def hill(truth: Columns, scale: float) -> dict[str, object]:
    """Scores that fall with the distance to ``truth`` in every slot, more in some."""

    def score(columns: Columns) -> float:
        return -sum(
            (slot + 1) * min(abs(c - t), 12) ** scale if c >= 0 else 9**scale
            for slot, (c, t) in enumerate(zip(columns, truth, strict=True))
        )

    return {"quick": score, "thorough": score}


@pytest.mark.parametrize("truth", [(2, 30, 57), (57, 30, 2), (0, 1, 2), (60, 59, 3), (30, 31, 29)])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_many_boundaries_are_searched_in_few_steps(truth: Columns, scale: float) -> None:
    search = LayerSearch(3, 61, **hill(truth, scale))  # type: ignore[arg-type]
    assert search.run([(2, 30, 58)]) == truth
    assert search.quick_count + len(search.scored) < 1200  # of 215940


def test_no_boundary_twice() -> None:
    def same_is_best(columns: Columns) -> float:
        return -sum(abs(c - 3) for c in columns)

    search = LayerSearch(3, 8, same_is_best, same_is_best)
    found = search.run([(0, 1, 2)])
    best = max(same_is_best(c) for c in permutations(range(8), 3))
    assert len(set(found)) == 3
    assert same_is_best(found) == best
    assert all(len(set(columns)) == 3 for columns in search.scored)


# -- intervals ----------------------------------------------------------------------------------


def test_rows_of_one_request_count_once() -> None:
    """Twenty requests, each one value over all its rows: no narrower than twenty rows."""
    torch.manual_seed(0)
    values = torch.randn(20).repeat_interleave(50) + 0.5
    request = torch.arange(20).repeat_interleave(50)
    clusters, kind = clusters_of(request)
    found = margin(values, torch.zeros(1000), clusters)
    one = values[::50]
    half = float(one.std()) / 20**0.5 * 2.861  # Student's t, 19 degrees of freedom, 99 %
    assert kind == "requests"
    assert found.mean == pytest.approx(float(one.mean()), abs=1e-6)
    assert found.interval.high - found.mean == pytest.approx(half, rel=0.01)


def test_few_requests_are_cut_into_blocks() -> None:
    clusters, kind = clusters_of(torch.arange(2).repeat_interleave(200))
    assert kind.startswith("blocks of 64 rows")
    assert int(clusters.max()) + 1 == 8
    only = margin(torch.ones(10), torch.zeros(10), torch.zeros(10, dtype=torch.int64))
    assert not only.clear


def test_chance_differences_are_rarely_clear() -> None:
    torch.manual_seed(3)
    clusters, _ = clusters_of(torch.arange(12).repeat_interleave(40))
    clear = 0
    for _ in range(400):
        shared = torch.randn(12).repeat_interleave(40)
        clear += margin(shared + torch.randn(480), torch.zeros(480), clusters).clear
    assert clear <= 8  # 0.5 % expected: 2


# -- what to write ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boundaries", "target", "release", "ids", "probe", "note"),
    [
        ((2, 5, 7), "DeepseekV3ForCausalLM", "0.5.23", (1, 4, 6), False, None),
        ((0, 3, 6), "DeepseekV3ForCausalLM", "0.5.23", (0, 3, 6), False, "[-1, 2, 5]"),
        ((0, 3, 6), "LlamaForCausalLM", "0.5.23", (-1, 2, 5), False, None),
        ((0, 3, 6), "LlamaForCausalLM", "0.5.21", (-1, 2, 5), True, "boundary 0"),
        ((6, 0, 3), "DeepseekV3ForCausalLM", "0.5.23", (6, 0, 3), True, "[1, 2, 0]"),
        ((1, 3, 6), "DeepseekV3ForCausalLM", "0.5.23", None, True, "LAYER_IDS=1,3,6"),
        ((1, 3, 6), "Unheard", "0.5.23", None, False, "not among the target classes"),
    ],
)
def test_the_list_for_sglang(
    boundaries: tuple[int, ...],
    target: str,
    release: str,
    ids: tuple[int, ...] | None,
    probe: bool,
    note: str | None,
) -> None:
    found = serving(boundaries, target, release, 10)
    assert found.ids == ids
    assert found.needs_probe == probe
    if note is None:
        assert found.notes == ()
    else:
        assert any(note in text for text in found.notes), found.notes


# -- rows ---------------------------------------------------------------------------------------


def request_of(
    length: int, prompt: int, hole: int | None = None, **more: object
) -> CapturedRequest:
    """States that tell their position in boundary 1, tokens that are 100 + position."""
    known = torch.ones(length, dtype=torch.bool)
    known[-1] = False
    if hole is not None:
        known[hole] = False
    states = torch.arange(length, dtype=torch.float32)[:, None, None].expand(length, 2, 4)
    info = PieceInfo(
        kind="prefill", request="r", piece=0, boundaries=[0], hidden_width=4, dtype="float32",
        all_boundaries=[0, 1], prompt_tokens=prompt, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return CapturedRequest(
        info=info,
        token_ids=torch.arange(length) + 100,
        aux=states[:, 0],
        aux_known=known,
        boundary_states=states,
        final_norm=states[:, 1],
        boundaries_known=known,
        rounds={},
        holes=(),
    )


def test_a_row_has_the_next_token_and_its_label_is_one_further_on() -> None:
    rows = collect([request_of(30, prompt=20)])
    [stretch] = rows.stretches
    at = stretch.positions
    assert at.tolist() == list(range(28))
    assert stretch.next_ids.tolist() == (at + 101).tolist()
    assert stretch.states[:, 1, 0].tolist() == at.tolist()
    assert stretch.final is not None
    assert stretch.final[:, 0].tolist() == (at + 1).tolist()
    assert stretch.choice_ids.tolist() == [p + 102 if p + 2 >= 20 else -1 for p in at.tolist()]


def test_a_hole_parts_a_request_and_long_requests_share_the_rows() -> None:
    rows = collect([request_of(60, prompt=20, hole=30)])
    spans = sorted((int(s.positions[0]), int(s.positions[-1])) for s in rows.stretches)
    assert spans == [(0, 28), (31, 57)]
    many = collect([request_of(2000, prompt=20) for _ in range(4)], limit=2048, expected=4)
    assert [len(stretch) for stretch in many.stretches] == [511] * 4
    assert int(many.stretches[0].positions[-1]) == 1997
    assert many.requests == 4


def test_captures_of_other_ranks_are_no_further_evidence() -> None:
    rows = collect([request_of(30, 20, tp_rank=rank) for rank in (0, 1)])
    assert rows.requests == len(rows.stretches) == 1
    assert rows.left_out == ("1 captures by other tensor-parallel ranks",)


@pytest.mark.parametrize(
    ("low", "high", "clear", "vague"),
    [(-0.3, 1.8, False, True), (-0.02, 0.05, False, False), (0.4, 1.2, True, False)],
)
def test_a_wide_interval_is_too_little_data_and_a_narrow_one_is_nothing(
    low: float, high: float, clear: bool, vague: bool
) -> None:
    control = Margin((low + high) / 2, Interval(low, high))
    assert (control.clear, control.vague) == (clear, vague)
