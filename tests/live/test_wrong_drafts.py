"""Drafts and flags that serve without an error and accept next to nothing."""

from __future__ import annotations

from pathlib import Path

from conftest import Models
from probed import accept_length, cli, newest, probed

from sglang_eagle3_probe.trace.records import Arguments, AuxStates, DraftForward, VocabMap, Weights


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
