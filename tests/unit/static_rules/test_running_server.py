"""The static rules on a running server: what it proves goes before what files predict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.static_rules.situations import DEEPSEEK, situation

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.live import LiveFacts
from sglang_eagle3_probe.rules.base import Finding
from sglang_eagle3_probe.rules.static.registry import judge

PATCHES = frozenset({"embedding_capture", "capture_order"})


def codes(made: Situation) -> set[str]:
    return {r.code for r in judge(made)}


def served(made: Situation, **live: Any) -> Situation:
    return replace(made, live=LiveFacts(**live))


EMBEDDING = situation(target=DEEPSEEK, ids=[-1, 2, 30])
UNSORTED = situation(ids=[28, 1, 15])
UNREAD = situation(
    draft={"eagle_config": ..., "eagle_aux_hidden_state_layer_ids": [-1, 2, 20]}, ids=None
)
OTHER_UNIT = situation(ids=[2, 16, 29])
TRAINED = situation(target=DEEPSEEK, ids=[2, 5, 30], trained=(-1, 2, 30))


@pytest.mark.parametrize(
    ("made", "code", "live"),
    [
        (
            EMBEDDING,
            "E3P115",
            {"patches": PATCHES, "ids": (-1, 2, 30), "boundaries": (0, 3, 31)},
        ),
        (
            UNSORTED,
            "E3P114",
            {"patches": PATCHES, "ids": (28, 1, 15), "boundaries": (29, 2, 16)},
        ),
        (
            UNREAD,
            "E3P110",
            {"ids": (-1, 2, 20), "ids_from": "variable", "boundaries": (0, 3, 21)},
        ),
        (
            OTHER_UNIT,
            "E3P111",
            {"ids": (2, 16, 29), "unit_was_set": True, "boundaries": (3, 17, 30)},
        ),
        (
            TRAINED,
            "E3P124",
            {"ids": (-1, 2, 30), "ids_from": "variable", "boundaries": (0, 3, 31)},
        ),
        (
            situation(target=DEEPSEEK, ids=[2, 30, 57]),
            "E3P118",
            {"ids": (2, 30, 57), "unit_was_set": True, "boundaries": (3, 31, 58)},
        ),
        (
            situation(target=DEEPSEEK, ids=[1, 30]),
            "E3P120",
            {"ids_from": "variable", "boundaries": (2, 31, 58), "states_fit_fc": True},
        ),
        (
            situation(draft={"eagle_config": []}),
            "E3P122",
            {"ids_from": "variable", "boundaries": (2, 16, 29)},
        ),
        (
            situation(d2t=None, kept=None, t2d_size=None, weights={"d2t": ..., "t2d": ...}),
            "E3P410",
            {"map_in_force": True},
        ),
        (
            situation(weights={"norm.weight": ...}),
            "E3P311",
            {"not_taken": (), "not_filled": ()},
        ),
        (
            situation(arguments={"speculative_eagle_topk": ...}),
            "E3P611",
            {},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_server_proves_is_not_predicted(
    made: Situation, code: str, live: dict[str, Any]
) -> None:
    assert code in codes(made), "the files alone must raise it, or this proves nothing"
    assert code not in codes(served(made, **live))


@pytest.mark.parametrize(
    ("made", "code", "live"),
    [
        # The patch is off, or the layers are others, or something was left: the fault stays.
        (EMBEDDING, "E3P115", {"ids": (-1, 2, 30), "boundaries": (-1, 2, 30)}),
        (
            EMBEDDING,
            "E3P115",
            {
                "patches": frozenset({"capture_order"}),
                "ids": (-1, 2, 30),
                "boundaries": (-1, 2, 30),
            },
        ),
        (
            UNSORTED,
            "E3P114",
            {
                "patches": frozenset({"embedding_capture"}),
                "ids": (28, 1, 15),
                "boundaries": (2, 16, 29),
            },
        ),
        (UNREAD, "E3P110", {"ids_from": "default", "boundaries": (2, 16, 29)}),
        (OTHER_UNIT, "E3P111", {"ids": (2, 16, 29), "boundaries": (3, 17, 30)}),
        (
            TRAINED,
            "E3P124",
            {"ids": (2, 5, 30), "ids_from": "eagle_config", "boundaries": (2, 5, 30)},
        ),
        (
            situation(weights={"norm.weight": ...}),
            "E3P311",
            {"not_taken": (), "not_filled": ("model.norm.weight",)},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_does_not_prove_stays(made: Situation, code: str, live: dict[str, Any]) -> None:
    assert code in codes(served(made, **live))


def test_who_runs_the_probe_is_not_told_to_start_it() -> None:
    live = {"ids": (-1, 2, 30), "boundaries": (-1, 2, 30)}
    before, after = (
        next(r for r in judge(made) if r.code == "E3P115")
        for made in (EMBEDDING, served(EMBEDDING, **live))
    )
    assert isinstance(before, Finding)
    assert isinstance(after, Finding)
    assert "--enable-probe" in before.fix
    assert "--enable-probe" not in after.fix
    assert "SGLANG_EAGLE3_PROBE_PATCHES" in after.fix


def test_the_list_of_the_variable_is_the_list_in_force() -> None:
    """Outside the target only by the variable: the files alone have nothing to say."""
    clean = situation()
    assert codes(clean) == set()
    [found] = judge(served(clean, ids=(1, 15, 40), ids_from="variable", boundaries=(2, 16, 41)))
    assert isinstance(found, Finding)
    assert found.code == "E3P112"
    assert found.evidence[0].where == "SGLANG_EAGLE3_PROBE_LAYER_IDS"


def test_numbers_in_force_are_the_servers_not_computed() -> None:
    asked = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": "3"}
    asked |= {"speculative_eagle_topk": "1", "speculative_num_draft_tokens": "8"}
    made = replace(served(situation()), asked=asked)
    [found] = judge(made)
    assert isinstance(found, Finding)
    assert found.code == "E3P610"
    assert [s.value for s in found.evidence] == [[3, 1, 8], [3, 1, 4]]


def test_numbers_that_sglang_chose() -> None:
    """Not 5, 4, 8 as the table has it for Llama: this server runs 2, 1, 3."""
    force = {"speculative_num_steps": 2, "speculative_num_draft_tokens": 3}
    made = situation(arguments=force)
    chosen = replace(served(made), asked={"speculative_algorithm": "EAGLE3"})
    [found] = judge(chosen)
    assert found.code == "E3P610"
    assert "2 steps, topk 1, 3 draft tokens" in found.message


def test_numbers_as_asked_are_no_finding_where_nobody_knows_what_was_asked() -> None:
    assert codes(served(situation())) == set()


def test_a_list_in_another_order_is_known_again() -> None:
    live = LiveFacts(ids=(28, 1, 15), boundaries=(2, 16, 29))
    assert live.listed_boundaries == (29, 2, 16)
    assert LiveFacts(ids=None, boundaries=(2, 16, 29)).listed_boundaries == (2, 16, 29)
    assert LiveFacts(ids=(1, 1, 2), boundaries=(2, 3)).listed_boundaries == (2, 3)
