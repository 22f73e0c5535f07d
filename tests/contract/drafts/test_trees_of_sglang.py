"""The offline tree is the one that SGLang's selection makes of the same distributions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sglang")

from rig.server import rig_environment  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from sglang_eagle3_probe.offline.drafts.reference_draft import Best, Output  # noqa: E402
from sglang_eagle3_probe.offline.drafts.tree_drafting import paths, tree  # noqa: E402

from .sglang_trees import SHAPES, STEPS  # noqa: E402

VOCAB, ROUNDS = 40, 16


class TableDraft:
    """A draft whose distribution depends on the token read, and on nothing else."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def best(self, normed: Any, count: int = 1) -> Best:
        top = self.table[normed[:, 0].long()].topk(count, dim=-1)
        none = torch.ones(len(normed))
        return Best(top.indices, top.values, none, none)

    def target_ids(self, draft_ids: Any) -> Any:
        return draft_ids

    def follow(self, context: Any, last: Any, ids: Any, *_: Any) -> Output:
        return Output(ids[:, None].float(), ids[:, None].float(), [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trees")
    generator = torch.Generator().manual_seed(3)
    table = (2 * torch.randn(VOCAB, VOCAB, generator=generator)).softmax(-1)
    roots = torch.randint(0, VOCAB, (ROUNDS,), generator=generator)
    save_file({"next": table, "roots": roots}, place / "tables.safetensors")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("sglang_trees.py")), str(place)],
        env=rig_environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return place


@pytest.mark.parametrize(("topk", "nodes"), SHAPES)
def test_trees(topk: int, nodes: int, folder: Path) -> None:
    tables = load_file(folder / "tables.safetensors")
    theirs = load_file(folder / f"trees-{topk}-{nodes}.safetensors")
    draft: Any = TableDraft(tables["next"])
    roots = tables["roots"]
    first = Output(roots[:, None].float(), roots[:, None].float(), [])
    rows = torch.zeros(ROUNDS, dtype=torch.int64)
    mine = tree(draft, SimpleNamespace(), first, rows, rows, STEPS, topk, nodes)  # type: ignore[arg-type]
    assert torch.equal(mine.step_ids, theirs["step_ids"])
    assert torch.allclose(mine.step_scores, theirs["step_scores"], rtol=1e-5)
    assert torch.equal(mine.node_ids, theirs["node_ids"])
    # A node's path has the score that put it into the tree, so its parents are the right ones.
    for row in range(ROUNDS):
        scores = []
        for depth, found in enumerate(paths(mine.node_ids[row], mine.parents[row])):
            for path in found:
                score, at = 1.0, int(roots[row])
                for token in path:
                    score, at = score * float(tables["next"][at, token]), token
                scores.append(score)
                assert len(path) == depth + 1
        expected = theirs["node_scores"][row].tolist()
        assert sorted(scores, reverse=True) == pytest.approx(expected, rel=1e-4)
