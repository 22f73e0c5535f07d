"""Drafts and flags that serve without an error and accept next to nothing."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import NEW_TOKENS, Models
from probed import accept_length, cli, newest, probed, tokens

from sglang_eagle3_probe.trace.records import (
    Arguments,
    AuxStates,
    DraftForward,
    LayerIds,
    VocabMap,
    Weights,
)


def report(place: Path) -> str:
    shown = cli("report", str(place))
    assert shown.returncode == 1, shown.stdout + shown.stderr
    return shown.stdout


def test_algorithm_eagle_with_an_eagle3_draft(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    with probed(
        models["deepseek"], models["deepseek-draft-default"], tmp_path, algorithm="EAGLE"
    ) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=32)
        assert accept_length(answers) < 1.5
        trace = run.rounds_match(answers)
    forwards = trace.processes[0].of(DraftForward)
    assert {r.fc for r in forwards if r.phase.startswith("extend")} == {"bypassed"}
    assert {r.count for r in trace.processes[0].of(AuxStates)} == {None}
    assert newest(trace, Arguments).in_force["speculative_algorithm"] == "EAGLE"
    assert not newest(trace, VocabMap).in_force
    text = report(run.traces)
    assert "E3P201" in text
    assert "E3P202" in text


def test_a_draft_without_its_map_and_with_strange_names(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    draft = models.variant("deepseek-draft-default", "no-map", drop_d2t=True)
    _rename(draft, {"norm.weight": "final_norm.weight"})
    with probed(models["deepseek"], draft, tmp_path) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=32)
        assert accept_length(answers) < 2.0
        trace = run.rounds_match(answers)
    assert not newest(trace, VocabMap).present
    weights = newest(trace, Weights)
    assert weights.not_taken == ["final_norm.weight"]
    assert weights.not_filled == ["model.norm.weight"]
    text = report(run.traces)
    for code in ("E3P301", "E3P302", "E3P401"):
        assert code in text


def _rename(draft: Path, names: dict[str, str]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(draft / "model.safetensors")
    renamed = {names.get(name, name): tensor for name, tensor in tensors.items()}
    save_file(renamed, draft / "model.safetensors", metadata={"format": "pt"})


def predicted(models: Models, draft: Path) -> set[str]:
    """Codes of the doctor's errors and warnings for this draft as it is served here."""
    arguments = (
        "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"
    )
    shown = cli(
        "doctor",
        *("--target", str(models["deepseek"]), "--draft", str(draft)),
        *("--args", arguments, "--json"),
    )
    assert shown.returncode == 1, shown.stdout + shown.stderr
    found = json.loads(shown.stdout)["findings"]
    return {f["code"] for f in found if f["severity"] in ("error", "warning")}


def test_ids_where_sglang_does_not_look(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """The default layers are captured instead: right tokens, few accepted, no word in the log."""
    draft = models.variant(
        "deepseek-draft-embed",
        "top-level",
        drop_eagle_config=True,
        config_overrides={"eagle_aux_hidden_state_layer_ids": [-1, 2, 5]},
    )
    assert {"E3P110", "E3P124"} <= predicted(models, draft)
    with probed(models["deepseek"], draft, tmp_path) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=32)
        assert tokens(answers) == [t[:32] for t in plain[:4]]
        length = accept_length(answers)
        record = newest(run.rounds_match(answers), LayerIds)
    assert length < 1.7
    assert [slot.boundary for slot in record.slots] == [2, 5, 7]
    assert record.trained_output_ids == [-1, 2, 5]
    text = report(run.traces)
    for code in ("E3P101", "E3P102", "E3P124", "E3P110"):
        assert code in text


def test_another_theta_than_in_training(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Trained with 10000. A theta far below costs acceptance; one above, such as 1e6, costs this
    small draft nothing (a replay gives 2.80 for both), so only the trainer's notes tell.
    """
    draft = models.variant(
        "deepseek-draft-default", "low-theta", config_overrides={"rope_theta": 10.0}
    )
    assert "E3P513" in predicted(models, draft)
    with probed(models["deepseek"], draft, tmp_path) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        length = accept_length(answers)
        run.rounds_match(answers)
    assert length < 2.4
    text = report(run.traces)
    assert "E3P513" in text


def test_a_draft_without_fc(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """SGLang starts with random numbers for fc, and says nothing."""
    draft = models.variant("deepseek-draft-default", "no-fc", drop_tensors=["fc.weight"])
    assert "E3P311" in predicted(models, draft)
    with probed(models["deepseek"], draft, tmp_path) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=32)
        assert tokens(answers) == [t[:32] for t in plain[:4]]
        length = accept_length(answers)
        trace = run.rounds_match(answers)
    assert length < 1.5
    assert newest(trace, Weights).not_filled == ["model.fc.weight"]
    text = report(run.traces)
    assert "E3P302" in text
    assert "E3P311" in text
