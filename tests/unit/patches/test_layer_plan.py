from __future__ import annotations

import itertools

import pytest

from sglang_eagle3_probe.patches.capture import _reordered
from sglang_eagle3_probe.patches.layer_plan import (
    Requested,
    TargetFacts,
    boundaries_of,
    complaint,
    inferred_reading,
    order_of,
    reading,
    width_complaint,
)

DEEPSEEK = TargetFacts("DeepseekV3ForCausalLM", 61)


def test_minus_one_makes_the_whole_list_output_ids() -> None:
    read_as, why = reading(Requested((-1, 2, 30), "eagle_config"))
    assert read_as == "output_id"
    assert "-1" in why
    assert boundaries_of((-1, 2, 30), "output_id") == (0, 3, 31)


def test_minus_one_counts_wherever_it_stands() -> None:
    assert reading(Requested((2, 30, -1), "eagle_config"))[0] == "output_id"


def test_other_lists_are_left_to_the_class_unless_the_user_names_the_unit() -> None:
    assert reading(Requested((2, 30, 58), "eagle_config"))[0] is None
    assert reading(Requested((2, 30, 58), "eagle_config", "boundary"))[0] == "boundary"
    assert reading(Requested((2, 30, 58), "eagle_config", "output_id"))[0] == "output_id"
    assert reading(Requested(None, "default", "output_id"))[0] == "default"


def test_the_classes_own_reading_is_recognised() -> None:
    assert inferred_reading((1, 29, 57), (2, 30, 58))[0] == "output_id"
    assert inferred_reading((2, 30, 58), (2, 30, 58))[0] == "boundary"
    assert "other" in inferred_reading((2, 30, 58), (3, 30, 58))[1]


@pytest.mark.parametrize("listed", list(itertools.permutations((0, 3, 31))))
def test_order_undoes_the_ascending_capture(listed: tuple[int, ...]) -> None:
    order = order_of(listed)
    arrived = sorted(listed)
    if order is None:
        assert list(listed) == arrived
        return
    assert [arrived[i] for i in order] == list(listed)


def test_reordering_a_packed_tensor_equals_reordering_the_list() -> None:
    torch = pytest.importorskip("torch")
    slots = [torch.randn(5, 4) for _ in range(3)]
    order = (2, 0, 1)
    packed = _reordered(torch.cat(slots, dim=-1), order)
    assert torch.equal(packed, torch.cat([slots[i] for i in order], dim=-1))
    assert [t.data_ptr() for t in _reordered(slots, order)] == [slots[i].data_ptr() for i in order]


def say(ids: tuple[int, ...] | None, read_as: str, boundaries: tuple[int, ...]) -> str | None:
    place = "eagle_config" if ids is not None else "default"
    return complaint(
        Requested(ids, place),
        read_as,  # type: ignore[arg-type]
        boundaries,
        DEEPSEEK,
        "would have failed",
    )


@pytest.mark.parametrize("ids", [(-1, 2, 30), (-1,), (59, 0), (30, 2, -1)])
def test_good_output_ids_draw_no_complaint(ids: tuple[int, ...]) -> None:
    assert say(ids, "output_id", boundaries_of(ids, "output_id")) is None


@pytest.mark.parametrize(
    ("ids", "read_as", "words"),
    [
        ((-1, 2, 2), "output_id", ["[2] stands there more than once"]),
        ((-1, 2, 75), "output_id", ["[75] is outside -1 to 59"]),
        ((-2, -1, 2), "output_id", ["[-2] is outside -1 to 59"]),
        ((-1, 2, 60), "output_id", ["60 is the state after the last layer", "-1 to 59"]),
        ((0, 3, 61), "boundary", ["61 is the state after the last layer", "0 to 60"]),
        ((-1, 3, 31), "boundary", ["[-1] is outside 0 to 60", "LAYER_IDS_UNIT=output_id"]),
    ],
)
def test_bad_ids_are_named_with_list_unit_stock_and_fix(
    ids: tuple[int, ...], read_as: str, words: list[str]
) -> None:
    message = say(ids, read_as, boundaries_of(ids, read_as))  # type: ignore[arg-type]
    assert message is not None
    unit = "output ids" if read_as == "output_id" else "boundaries"
    for word in [*words, str(list(ids)), unit, "Stock SGLang would have failed", "Fix:"]:
        assert word in message


def test_a_shallow_target_repeats_the_default() -> None:
    message = complaint(
        Requested(None, "default"), "default", (2, 2, 1), TargetFacts("X", 4), "would have failed"
    )
    assert message is not None
    assert "repeats [2]" in message


def test_width_complaint_names_both_sides() -> None:
    assert width_complaint((0, 3, 31), 7168, 21504, "eagle_config") is None
    message = width_complaint((0, 3), 7168, 21504, "variable")
    assert message is not None
    for word in ("14336", "21504", "SGLANG_EAGLE3_PROBE_LAYER_IDS", "3 ids", "Fix:"):
        assert word in message
