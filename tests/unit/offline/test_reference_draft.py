"""The offline draft against the class that trained the fixtures; drafts that make no sense.

``tests/contract/drafts`` holds it against SGLang and speculators, flag by flag.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fixtures import draft_variant, materialise  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from simulated_engine import load_draft  # noqa: E402

from sglang_eagle3_probe.checkpoint.facts import CheckpointError  # noqa: E402
from sglang_eagle3_probe.offline.drafts.draft_weights import Folder  # noqa: E402
from sglang_eagle3_probe.offline.drafts.drafting import chain  # noqa: E402
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft  # noqa: E402
from sglang_eagle3_probe.offline.drafts.tree_drafting import tree  # noqa: E402

NAME, STEPS, ROWS = "llama-draft", 3, 40


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return materialise("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return materialise(NAME, tmp_path_factory.mktemp("models") / NAME)


@pytest.fixture(scope="module")
def draft(folder: Path, target: Path) -> ReferenceDraft:
    return ReferenceDraft.load(folder, target=target)


@pytest.fixture(scope="module")
def ids() -> Any:
    return torch.randint(0, 2000, (ROWS + STEPS,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def aux(draft: ReferenceDraft) -> Any:
    width = draft.plan.slots * draft.plan.target_hidden
    return torch.randn(ROWS, width, generator=torch.Generator().manual_seed(2))


def test_steps_are_the_trainers(
    draft: ReferenceDraft, folder: Path, target: Path, ids: Any, aux: Any
) -> None:
    trained = load_draft(folder, NAME)
    table = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    padded = torch.cat([aux, torch.zeros(STEPS, aux.shape[1])])
    theirs = trained.chain(table[ids][None], trained.fc(padded)[None], STEPS)
    outputs = draft.steps(ids[1:], draft.features(aux), torch.arange(ROWS), STEPS)
    for mine, other in zip(outputs, theirs, strict=True):
        assert torch.allclose(draft.logits(mine.normed), other[0], atol=1e-4)
    assert torch.equal(draft.target_ids(torch.arange(len(trained.d2t))), trained.target_ids)


def test_some_rows_are_the_same_as_all_rows(draft: ReferenceDraft, ids: Any, aux: Any) -> None:
    features, positions = draft.features(aux), torch.arange(ROWS)
    rows = torch.tensor([0, 7, 39])
    every = draft.steps(ids[1:], features, positions, STEPS)
    some = draft.steps(ids[1:], features, positions, STEPS, rows)
    for whole, part in zip(every, some, strict=True):
        assert torch.allclose(whole.normed[rows], part.normed, atol=1e-5)


def test_best_is_the_best_of_the_logits(draft: ReferenceDraft, ids: Any, aux: Any) -> None:
    logits, _ = draft.run(ids[1 : ROWS + 1], draft.features(aux), torch.arange(ROWS))
    output, _ = draft.begin(ids[1 : ROWS + 1], draft.features(aux), torch.arange(ROWS))
    best = draft.best(output.normed, 4)
    top = logits.topk(4, dim=-1)
    assert torch.equal(best.draft_ids, top.indices)
    assert torch.allclose(best.probabilities, logits.softmax(-1).gather(1, top.indices), atol=1e-6)
    assert torch.allclose(best.gaps, top.values[:, 0] - top.values[:, 1], atol=1e-5)


def test_a_chain_that_reads_its_own_choices_is_the_forced_one(
    draft: ReferenceDraft, ids: Any, aux: Any
) -> None:
    rows = torch.arange(5, ROWS, 6)
    positions = torch.arange(ROWS)
    first, context = draft.begin(ids[1 : ROWS + 1], draft.features(aux), positions, rows)
    free = chain(draft, context, first, rows, rows, STEPS)
    chosen = torch.stack([step.target_ids for step in free], 1)
    forced = chain(draft, context, first, rows, rows, STEPS, chosen[:, :-1])
    for one, other in zip(free, forced, strict=True):
        assert torch.equal(one.target_ids, other.target_ids)
        assert torch.equal(one.hidden, other.hidden)
    other_ids = (chosen[:, :-1] + 1) % 2000
    moved = chain(draft, context, first, rows, rows, STEPS, other_ids)
    assert not torch.allclose(moved[1].hidden, free[1].hidden)


def test_nodes_of_a_tree_may_read_the_tokens_of_their_parents(
    draft: ReferenceDraft, ids: Any, aux: Any
) -> None:
    rows = torch.arange(5, ROWS, 6)
    positions = torch.arange(ROWS)
    first, context = draft.begin(ids[1 : ROWS + 1], draft.features(aux), positions, rows)
    roots = ids[rows + 1]
    # A tree of one branch is a chain, forced to read the root and then all but the last two.
    one = tree(draft, context, first, rows, rows, STEPS, 1, STEPS + 1, roots)
    read = torch.cat([roots[:, None], one.node_ids], dim=1)[:, : STEPS - 1]
    forced = chain(draft, context, first, rows, rows, STEPS, read)
    assert torch.equal(one.node_ids, torch.stack([step.target_ids for step in forced], 1))
    plain = tree(draft, context, first, rows, rows, STEPS, 1, STEPS + 1)
    assert not torch.equal(one.node_ids, plain.node_ids)
    # All branches of step 1 read the root, from one state: what follows them is the same.
    wide = tree(draft, context, first, rows, rows, 2, 2, 7, roots)
    assert wide.node_ids.shape[1] == 6
    assert torch.equal(wide.node_ids[:, 2:4], wide.node_ids[:, 4:6])
    assert not torch.equal(wide.node_ids[:, 0], wide.node_ids[:, 1])


def test_variations_change_what_they_name(draft: ReferenceDraft, ids: Any, aux: Any) -> None:
    def run(other: ReferenceDraft) -> Any:
        return other.run(ids[1 : ROWS + 1], other.features(aux), torch.arange(ROWS))

    plain, hidden = run(draft)
    for change in (
        {"theta": 1e5}, {"last_norm": "none"}, {"double_norm": True}, {"window": 3},
        {"norm_before_residual": True}, {"slot_order": (1, 0, 2)}, {"fc": "skip"},
    ):  # fmt: skip
        logits, _ = run(draft.varied(**change))
        assert not torch.allclose(plain, logits, atol=1e-3), change
    logits, normed = run(draft.varied(norm_output=True))
    assert torch.equal(plain, logits)
    assert not torch.allclose(hidden, normed)
    with pytest.raises(TypeError, match="no such variation"):
        draft.varied(thetas=1)


def test_bfloat16_weights_are_computed_with_in_float32(
    draft: ReferenceDraft, tmp_path: Path, target: Path, ids: Any, aux: Any
) -> None:
    """The fixtures' weights are bfloat16 numbers, so nothing is lost by storing them so."""
    stored = materialise(NAME, tmp_path / "bfloat16", dtype="bfloat16")
    small = ReferenceDraft.load(stored, target=target)
    given = ids[1 : ROWS + 1], draft.features(aux), torch.arange(ROWS)
    assert torch.allclose(draft.run(*given)[0], small.run(*given)[0], atol=1e-4)
    assert small.weights.get("fc.weight").dtype == torch.bfloat16  # type: ignore[union-attr]


def broken(folder: Path, place: Path, drop: str = "", **config: Any) -> Path:
    """A copy of the draft without a tensor, or with another config."""
    place.mkdir()
    known = json.loads((folder / "config.json").read_text())
    known = {k: v for k, v in {**known, **config}.items() if v is not None}
    (place / "config.json").write_text(json.dumps(known))
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(drop, None)
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    return place


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"hidden_size": None}, "has no hidden_size"),
        ({"hidden_size": 100}, "fc.weight of the draft is"),
        ({"hidden_act": "relu"}, "hidden_act is relu"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rotary scaling is longrope"),
    ],
)
def test_configs_that_make_no_draft(
    config: dict[str, Any], says: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=says) as raised:
        ReferenceDraft.load(broken(folder, tmp_path / "draft", **config))
    assert "Fix: " in str(raised.value)


def test_a_missing_tensor_is_named(folder: Path, target: Path, tmp_path: Path, ids: Any) -> None:
    place = broken(folder, tmp_path / "draft", drop="midlayer.mlp.up_proj.weight")
    lacking = ReferenceDraft.load(place, target=target)
    with pytest.raises(CheckpointError, match=r"has no layers\.0\.mlp\.up_proj\.weight"):
        lacking.run(ids[:4], torch.zeros(4, lacking.plan.hidden), torch.arange(4))


def test_states_of_another_width(draft: ReferenceDraft) -> None:
    with pytest.raises(CheckpointError, match="fc of the draft takes"):
        draft.features(torch.zeros(2, draft.plan.target_hidden * 2))


def test_ids_outside_the_vocabulary(draft: ReferenceDraft) -> None:
    with pytest.raises(CheckpointError, match="has 2000 rows"):
        draft.embed(torch.tensor([5, 2000]))
    assert not draft.embed(torch.tensor([5, 2000]), beyond=True)[1].any()


def test_embedding_rows_are_those_of_the_table(draft: ReferenceDraft, target: Path) -> None:
    table = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    wanted = torch.tensor([1999, 3, 3, 0])
    assert torch.equal(draft.embed(wanted), table[wanted])


def test_the_target_is_asked_for_by_name(folder: Path, ids: Any) -> None:
    alone = ReferenceDraft.load(folder)
    with pytest.raises(CheckpointError, match="--target"):
        alone.embed(ids)


def test_pickles_are_not_read(tmp_path: Path, folder: Path) -> None:
    place = broken(folder, tmp_path / "draft")
    (place / "model.safetensors").rename(place / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="has no safetensors weights"):
        Folder(place)


def test_what_its_files_say_of_training(tmp_path: Path, target: Path) -> None:
    plain = draft_variant(NAME, tmp_path / "plain")
    assert ReferenceDraft.load(plain, target=target).trained_changes == {}
    flagged = draft_variant(
        NAME,
        tmp_path / "flagged",
        config_overrides={"norm_before_residual": True, "sliding_window": 8},
    )
    tensors = load_file(flagged / "model.safetensors")
    tensors["embed_tokens.weight"] = torch.zeros(2000, 4)
    save_file(tensors, flagged / "model.safetensors", metadata={"format": "pt"})
    assert ReferenceDraft.load(flagged, target=target).trained_changes == {
        "norm_before_residual": True,
        "window": 8,
        "window_moves": False,
        "embedding": "own",
    }
