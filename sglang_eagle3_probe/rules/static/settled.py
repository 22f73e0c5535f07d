"""Where a running server has settled what a static rule can only predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.live import LiveFacts
from sglang_eagle3_probe.rules.base import Finding, Result


@dataclass(frozen=True)
class Settled:
    """Codes whose results fall away when the server shows the contrary."""

    codes: frozenset[str]
    why: str
    when: Callable[[Situation, LiveFacts], bool]
    errors_only: bool = False


def _served_as_trained(situation: Situation, live: LiveFacts) -> bool:
    trained = situation.draft.trained_output_ids
    return trained is not None and live.boundaries == tuple(o + 1 for o in trained)


def _nothing_left(_: Situation, live: LiveFacts) -> bool:
    return live.not_taken == () and live.not_filled == ()


SETTLED: tuple[Settled, ...] = (
    Settled(
        frozenset({"E3P110", "E3P114", "E3P124"}),
        "the layers captured are the layers of training",
        _served_as_trained,
    ),
    Settled(
        frozenset({"E3P111", "E3P118"}),
        "the user said in which unit the list is",
        lambda _, live: live.unit_was_set,
    ),
    Settled(
        frozenset({"E3P110"}),
        "the probe's variable gives the list that the config does not",
        lambda _, live: live.ids_from == "variable",
    ),
    Settled(
        frozenset({"E3P115"}),
        "the probe captures the embedding output",
        lambda _, live: "embedding_capture" in live.patches,
    ),
    Settled(
        frozenset({"E3P114"}),
        "the probe keeps the order of the list",
        lambda _, live: "capture_order" in live.patches,
    ),
    Settled(
        frozenset({"E3P120", "E3P317"}),
        "the states captured are as many as fc takes",
        lambda _, live: bool(live.states_fit_fc),
    ),
    Settled(
        frozenset({"E3P122"}),
        "the probe's variable gives the list",
        lambda _, live: live.ids_from == "variable",
    ),
    Settled(
        frozenset({"E3P410"}),
        "a vocabulary map is in force",
        lambda _, live: bool(live.map_in_force),
    ),
    Settled(
        frozenset({"E3P310", "E3P311", "E3P312", "E3P324", "E3P325", "E3P326"}),
        "every tensor was taken and every parameter filled",
        _nothing_left,
    ),
    Settled(
        frozenset({"E3P611"}),
        "it says that SGLang stops at its arguments, and it loaded the draft",
        lambda _situation, _live: True,
        errors_only=True,
    ),
)


def not_settled(situation: Situation, results: Iterable[Result]) -> list[Result]:
    """Results without those that the server itself contradicts; all of them without a server."""
    live = situation.live
    if live is None:
        return list(results)
    gone = [row for row in SETTLED if row.when(situation, live)]
    return [result for result in results if not any(_falls(row, result) for row in gone)]


def _falls(row: Settled, result: Result) -> bool:
    if result.code not in row.codes:
        return False
    return not row.errors_only or (isinstance(result, Finding) and result.severity == "error")
