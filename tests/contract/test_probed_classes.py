"""The probe around each release's own classes: its parser, its DeepSeek-V2, its result processor.

One process per release, on a CPU, with this environment's torch. Releases are unpacked by
``scripts/check_releases``, which runs every one of them; a plain test run takes those beside which
something changes.
"""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from contract.releases import PROVED_BY, RELEASES
from contract.served.asking import only_usual, search_path
from contract.served.probed import CannotRun, ask

USUAL = ("0.5.10.post1", "0.5.13.post1", "0.5.23")
LISTS = ((-1, 2, 5), (5, -1, 2), (-1,), (0, 3, 6), (2, 5, 8), (1, 5, 8), None)
LATE_IDS, ID_RULE, OWN_EMBEDDING = Version("0.5.11"), Version("0.5.13"), Version("0.5.14")
DEFAULT = [2, 6, 9]


@pytest.fixture(scope="module", params=[r for r in RELEASES if "classes" in PROVED_BY.get(r, ())])
def told(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Version, dict[str, Any]]:
    """A release, and what its classes did with the probe around them."""
    release: str = request.param
    only_usual(release, USUAL)
    folder = search_path(release, "scripts/check_releases")
    try:
        answers = ask(release, folder, tmp_path_factory.mktemp(release), LISTS)
    except CannotRun as error:
        pytest.fail(str(error))
    return Version(release), answers


def answer(told: tuple[Version, dict[str, Any]], ids: tuple[int, ...] | None) -> dict[str, Any]:
    found: dict[str, Any] = told[1]["answers"][LISTS.index(ids)]
    assert "raised" not in found, found
    return found


@pytest.mark.parametrize(
    ("ids", "boundaries"), [((-1, 2, 5), [0, 3, 6]), ((5, -1, 2), [6, 0, 3]), ((-1,), [0])]
)
def test_embedding(told: Any, ids: tuple[int, ...], boundaries: list[int]) -> None:
    """The real forward captures the embedding output and the right layers, in every release."""
    found = answer(told, ids)
    assert found["forward"] == {"count": len(ids), "boundaries": sorted(boundaries)}
    assert found["planned"] == found["told"] == boundaries
    assert ("capture_order" in found["patches"]) is (boundaries != sorted(boundaries))
    assert "embedding_capture" in found["patches"]


@pytest.mark.parametrize("ids", [(-1, 2, 5), (-1,)])
def test_the_copy_compiles_in_one_piece(told: Any, ids: tuple[int, ...]) -> None:
    """As SGLang compiles a prefill graph, with its own function: ``fullgraph=True``."""
    release, found = told[0], answer(told, ids)["compiled"]
    if release >= OWN_EMBEDDING:
        assert found is None
    else:
        assert found["pieces"] > 0
        assert (found["count"], found["first"]) == (len(ids), 0)


def test_what_sglang_alone_would_do_is_told(told: Any) -> None:
    release, found = told[0], answer(told, (-1, 2, 5))
    if release < ID_RULE:
        assert found["stock"] == [0, 3, 6]
        assert "TypeError" in found["stock_error"]
    else:
        assert found["stock"] == [-1, 2, 5]
        assert "captures 2 of 3" in found["stock_error"]


def test_boundary_0_in_a_list_without_minus_1(told: Any) -> None:
    """Raw boundaries from 0.5.13 on; before, the class adds 1 and no 0 is left."""
    expected = [1, 4, 7] if told[0] < ID_RULE else [0, 3, 6]
    assert answer(told, (0, 3, 6))["forward"]["boundaries"] == expected


def test_other_lists_are_read_as_the_release_reads_them(told: Any) -> None:
    raw = told[0] >= ID_RULE
    assert answer(told, (2, 5, 8))["forward"]["boundaries"] == ([2, 5, 8] if raw else [3, 6, 9])
    assert answer(told, (1, 5, 8))["forward"]["boundaries"] == [2, 6, 9]
    assert answer(told, None)["forward"]["boundaries"] == DEFAULT


@pytest.mark.parametrize("ids", [(-1, 2, 5), (2, 5, 8)])
def test_graphs_get_the_configured_ids(told: Any, ids: tuple[int, ...]) -> None:
    """Up to 0.5.10.post1 kernel warm-up and graph capture ask for the default ones."""
    found = answer(told, ids)
    if told[0] < LATE_IDS:
        assert found["for_graphs"] == [found["planned"]] * 2
        assert "ids_before_graphs" in found["patches"]
    else:
        assert found["for_graphs"] == []
        assert "ids_before_graphs" not in found["patches"]


def test_command_line(told: Any) -> None:
    """The flag is known, shown, acts when parsed, and leaves nothing on the arguments' record."""
    assert told[1]["flags"] == {
        "helped": True, "off": False, "on": True, "dir": True, "foreign": [],
    }  # fmt: skip


def test_counters(told: Any) -> None:
    """Correct drafts by SGLang's own count, whatever this release calls it."""
    assert told[1]["round"] == {
        "tokens": [[0, 1, 2], [4]],
        "correct_drafts": [[2, 0], [2, 0]],
        "rounds": [[0, 0], [1, 1]],
        "proposed": [3, 3],
        "starts": 2,
        "ends": [[2, 4, [0, 0, 2]], [2, 0, [2]]],
    }
