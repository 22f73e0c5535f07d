"""The table of conventions against the setters of the installed SGLang, run from their source."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from unit.checkpoint.setters import run_setter, setters

from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.host.target_classes import CLASSES

LAYERS = 36
LISTS = (
    None,
    [1, 17, 32],
    [2, 18, 33],
    [0, 3, 31],
    [-1, 2, 30],
    [3, 29, 35],
    [24, 30, 36],
    [29, 1],
)


def models() -> tuple[Path, str]:
    try:
        distribution = metadata.distribution("sglang")
    except metadata.PackageNotFoundError:
        pytest.skip("SGLang is not installed")
    return Path(str(distribution.locate_file("sglang/srt/models"))), distribution.version


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_boundaries_are_those_of_the_setter(name: str) -> None:
    folder, release = models()
    file = folder / f"{CLASSES[name].file}.py"
    function = setters(file.read_text(encoding="utf-8")).get(name)
    if function is None:
        pytest.skip("inherits or delegates")
    for ids in LISTS:
        made = run_setter(function, ids, LAYERS)
        if made == "delegates":
            pytest.skip("delegates")
        expected = conventions.sglang_boundaries(name, release, ids, LAYERS)
        assert not isinstance(expected, conventions.Unserved)
        if made == "IndexError":
            assert conventions.reach(name, release, max(expected), LAYERS) == "crash"
        else:
            assert made == list(expected)
