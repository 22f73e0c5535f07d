"""Fixtures of the live tests: models on disk, prompts, and the tokens of plain decoding."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

NEW_TOKENS = 96
PROMPTS = 8


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = importlib.util.find_spec("sglang") is None
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
            if missing:
                item.add_marker(pytest.mark.skip(reason="SGLang is not installed"))


@dataclass
class Models:
    """Fixture models, written to disk when first asked for."""

    root: Path
    _made: dict[str, Path] = field(default_factory=dict)
    _changes: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Path:
        from fixtures.materialise import materialise

        if name not in self._made:
            self._made[name] = materialise(name, self.root / name)
        return self._made[name]

    def variant(self, name: str, label: str, **changes: Any) -> Path:
        """A draft with another config or without some tensor; a label means the same everywhere."""
        from fixtures.materialise import draft_variant

        key = f"{name}-{label}"
        assert self._changes.setdefault(key, changes) == changes, f"two drafts are called {key}"
        if key not in self._made:
            self._made[key] = draft_variant(name, self.root / key, **changes)
        return self._made[key]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    from fixtures.prompts import held_out_prompts

    return [list(prompt.token_ids) for prompt in held_out_prompts(PROMPTS)]


@pytest.fixture(scope="session")
def plain(
    models: Models, prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[int, ...]]:
    """Greedy tokens of the DeepSeek target without a draft and without the probe."""
    from rig.server import RigServer

    log = tmp_path_factory.mktemp("plain") / "server.log"
    with RigServer(models["deepseek"], log_file=log) as server:
        answers = server.generate(prompts, max_new_tokens=NEW_TOKENS)
    return [a.output_ids for a in answers]
