"""Other ways to serve: two ranks, trees, Kimi-K2.5 and Llama targets, each way to start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import NEW_TOKENS, Models
from probed import accept_length, newest, probed, probed_pair, tokens
from rig.server import RigServer, rig_environment

from sglang_eagle3_probe.trace.records import (
    Arguments,
    LayerIds,
    Seams,
    VocabMap,
    Weights,
)


def test_two_tensor_parallel_ranks(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(models, tmp_path, tp=2) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        trace = run.trace(
            lambda t: len(t.processes) == 2 and all(any(p.verify_rounds()) for p in t.processes)
        )
        run.rounds_match(answers)
    first, second = trace.processes
    assert {p.header.ranks.tp_rank for p in trace.processes if p.header} == {0, 1}
    assert len(list(run.traces.glob("*.jsonl"))) == 2
    assert first.newest(VocabMap).digest == second.newest(VocabMap).digest  # type: ignore[union-attr]
    for name in ("fc",):
        assert (
            first.newest(Weights).digests[name]  # type: ignore[union-attr]
            == second.newest(Weights).digests[name]  # type: ignore[union-attr]
        )
    assert [s.boundary for s in second.newest(LayerIds).slots] == [0, 3, 6]  # type: ignore[union-attr]


def test_trees(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(models, tmp_path, topk=4, num_draft_tokens=8) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        assert accept_length(answers) >= 2.8
        trace = run.rounds_match(answers)
    rounds = list(trace.processes[0].verify_rounds())
    assert {(r.steps, r.topk, r.proposed_drafts) for r in rounds} == {(3, 4, 7)}
    correct = sum(c for r in rounds for c in r.correct_drafts)
    assert correct == sum(a.meta_info["spec_num_correct_drafts"] for a in answers)


def test_kimi_k25_converts_once_through_its_delegation(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed(
        models["kimi"],
        models["deepseek-draft-embed"],
        tmp_path,
        extra_args=["--trust-remote-code"],
    ) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        assert accept_length(answers) >= 2.8
        record = newest(run.rounds_match(answers), LayerIds)
    assert [s.boundary for s in record.slots] == [0, 3, 6]
    assert record.model_class.startswith("KimiK25ForConditionalGeneration")
    assert newest(run.trace(), Arguments).target_architecture == "KimiK25ForConditionalGeneration"


def test_llama(models: Models, prompts: list[list[int]], tmp_path: Path) -> None:
    with RigServer(models["llama"], log_file=tmp_path / "plain.log") as server:
        expected = tokens(server.generate(prompts, max_new_tokens=NEW_TOKENS))
    with probed(models["llama"], models["llama-draft"], tmp_path) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == expected
        assert accept_length(answers) >= 2.0
        record = newest(run.rounds_match(answers), LayerIds)
    layers = json.loads((models["llama"] / "config.json").read_text())["num_hidden_layers"]
    assert [s.boundary for s in record.slots] == [2, layers // 2, layers - 3]
    assert record.configured is None
    assert record.unit == "default"


def test_sglang_serve_takes_the_flag(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(models, tmp_path, entry="serve") as run:
        answers = run.server.generate(prompts[:2], max_new_tokens=16)
        assert tokens(answers) == [t[:16] for t in plain[:2]]
        assert newest(run.rounds_match(answers), Seams).seams


ENGINE = """
import json, sys
import sglang

if __name__ == "__main__":
    model, draft, prompts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    engine = sglang.Engine(
        model_path=model, device="cpu", dtype="float32", max_total_tokens=4096,
        disable_cuda_graph=True, skip_server_warmup=True, max_running_requests=8,
        speculative_algorithm="EAGLE3", speculative_draft_model_path=draft,
        speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4,
    )
    answers = engine.generate(
        input_ids=prompts, sampling_params={"temperature": 0.0, "max_new_tokens": 16}
    )
    print("ANSWER", json.dumps([a["output_ids"] for a in answers]))
    engine.shutdown()
"""


def test_engine_by_variable(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    from sglang_eagle3_probe.trace.reader import read

    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    environment = rig_environment(
        {"SGLANG_EAGLE3_PROBE": "1", "SGLANG_EAGLE3_PROBE_DIR": str(tmp_path / "traces")}
    )
    arguments = [
        str(models["deepseek"]),
        str(models["deepseek-draft-embed"]),
        json.dumps(prompts[:2]),
    ]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    [line] = [x for x in done.stdout.splitlines() if x.startswith("ANSWER ")] or [""]
    assert line, done.stdout[-2000:] + done.stderr[-3000:]
    assert [tuple(ids) for ids in json.loads(line[7:])] == [t[:16] for t in plain[:2]]
    [process] = read(tmp_path / "traces").processes
    assert [s.boundary for s in process.newest(LayerIds).slots] == [0, 3, 6]  # type: ignore[union-attr]
