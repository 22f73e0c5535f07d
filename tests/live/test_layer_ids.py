"""Lists of aux layer ids, good and bad, on the real DeepSeek-V3 class in a real server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import accept_length, cli, newest, probed, tokens
from rig.server import RigServerError
from safetensors.torch import load_file

from sglang_eagle3_probe.trace.records import AuxStates, DraftForward, LayerIds, VocabMap

HIDDEN = 192


def report(place: Path) -> subprocess.CompletedProcess[str]:
    return cli("report", str(place))


def slots(record: Any) -> list[int]:
    return [slot.boundary for slot in record.slots]


def test_the_owners_case(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Trained with the embedding first, served three layer outputs: right tokens, few accepted."""
    draft = models.variant("deepseek-draft-embed", "owner", aux_layer_ids=[3, 6, 9])
    with probed(models["deepseek"], draft, tmp_path) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        assert accept_length(answers) <= 1.7
        record = newest(run.rounds_match(answers), LayerIds)
    assert slots(record) == [3, 6, 9]
    assert record.patches_applied == []
    assert record.trained_output_ids == [-1, 2, 5]
    shown = report(run.traces)
    assert shown.returncode == 1
    text = " ".join(shown.stdout.split())
    assert "E3P101" in text
    assert "trained on [-1, 2, 5] (embedding first), served without it" in text


def test_ids_by_variable_override_the_config(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """The fix of the owner's case without touching the draft's files."""
    draft = models.variant("deepseek-draft-embed", "owner", aux_layer_ids=[3, 6, 9])
    variables = {"layer_ids": "-1,2,5", "full_vocab_map": "1"}
    with probed(models["deepseek"], draft, tmp_path, variables=variables) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        assert accept_length(answers) >= 2.8
        record = newest(run.rounds_match(answers), LayerIds)
        whole = newest(run.trace(), VocabMap).full_map
    d2t = load_file(draft / "model.safetensors")["d2t"].tolist()
    assert whole == [offset + i for i, offset in enumerate(d2t)]
    assert slots(record) == [0, 3, 6]
    assert record.configured_at == "variable"
    assert record.stock_boundaries == [3, 6, 9]
    assert "layer_ids" in record.patches_applied or "embedding_capture" in record.patches_applied


def test_list_order_is_kept_and_minus_one_may_stand_anywhere(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """A draft whose fc blocks are in another order, with the list that says so."""
    draft = models.variant("deepseek-draft-embed", "permuted", aux_layer_ids=[5, -1, 2])
    _permute_fc(draft, [2, 0, 1])
    with probed(models["deepseek"], draft, tmp_path) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        assert accept_length(answers) >= 2.8
        trace = run.rounds_match(answers)
        record = newest(trace, LayerIds)
        aux = newest(trace, AuxStates)
    assert slots(record) == [6, 0, 3]
    assert record.patches_applied == ["embedding_capture", "capture_order"]
    assert aux.reordered
    assert aux.boundaries == [6, 0, 3]


def test_without_capture_order_the_concatenation_is_ascending(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    draft = models.variant("deepseek-draft-embed", "permuted", aux_layer_ids=[5, -1, 2])
    with probed(
        models["deepseek"],
        draft,
        tmp_path,
        variables={"patches": "embedding_capture", "trained_layer_ids": "5,-1,2"},
    ) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=32)
        record = newest(run.rounds_match(answers), LayerIds)
    assert slots(record) == [0, 3, 6]
    assert report(run.traces).returncode == 1
    assert "E3P103" in report(run.traces).stdout


def test_minus_one_alone(models: Models, prompts: list[list[int]], tmp_path: Path) -> None:
    """One slot as wide as the draft: SGLang never projects it, and the probe says so."""
    draft = models.variant("deepseek-draft-embed", "alone", aux_layer_ids=[-1])
    _keep_fc_columns(draft, 0, HIDDEN)
    with probed(
        models["deepseek"], draft, tmp_path, extra_args=["--enable-return-hidden-states"]
    ) as run:
        [answer] = run.server.generate([prompts[0]], max_new_tokens=8, return_hidden_states=True)
        trace = run.rounds_match([answer])
        record = newest(trace, LayerIds)
        forwards = trace.processes[0].of(DraftForward)
    assert slots(record) == [0]
    assert len(answer.meta_info["hidden_states"][0][0]) == HIDDEN
    assert {r.fc for r in forwards if r.phase.startswith("extend")} == {"bypassed"}
    assert "WRONG" in "\n".join(run.log_lines)
    assert "E3P201" in report(run.traces).stdout


@pytest.mark.parametrize(
    ("ids", "variables", "words"),
    [
        ([-1, 2, 9], {}, ["[-1, 2, 9]", "output ids", "after the last layer", "Stock SGLang"]),
        ([-1, 2], {}, ["2 aux boundaries [0, 3]", "384", "576", "3 ids"]),
    ],
)
def test_bad_ids_stop_the_start(
    models: Models,
    tmp_path: Path,
    ids: list[int],
    variables: dict[str, str],
    words: list[str],
) -> None:
    label = "bad" + "".join(str(i) for i in ids)
    draft = models.variant("deepseek-draft-embed", label, aux_layer_ids=ids)
    if len(ids) == 2:
        # SGLang sizes fc by the list; num_aux_hidden_states says what the weights hold.
        _set_config(draft, num_aux_hidden_states=3)
    with (
        pytest.raises(RigServerError, match="exited"),
        probed(models["deepseek"], draft, tmp_path, variables=variables),
    ):
        raise AssertionError("it started")
    log = (tmp_path / "server.log").read_text(errors="replace")
    [line] = [x for x in log.splitlines() if "eagle3-probe:" in x and "Nothing was served" in x]
    for word in [*words, "Fix:"]:
        assert word in line


def _permute_fc(draft: Path, order: list[int]) -> None:
    from safetensors.torch import save_file
    from torch import cat

    tensors = load_file(draft / "model.safetensors")
    blocks = tensors["fc.weight"].chunk(3, dim=1)
    tensors["fc.weight"] = cat([blocks[i] for i in order], dim=1).contiguous()
    save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})


def _keep_fc_columns(draft: Path, start: int, stop: int) -> None:
    from safetensors.torch import save_file

    tensors = load_file(draft / "model.safetensors")
    tensors["fc.weight"] = tensors["fc.weight"][:, start:stop].contiguous()
    save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})


def _set_config(draft: Path, **values: Any) -> None:
    import json

    path = draft / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **values}, indent=2))
