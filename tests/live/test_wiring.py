"""The owner's case wired right: everything the probe says, checked against SGLang itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, accept_length, cli, newest, only, probed_pair, rid_of, tokens
from safetensors.torch import load_file

from sglang_eagle3_probe.analysis.acceptance import accept
from sglang_eagle3_probe.trace.records import (
    Arguments,
    AuxStates,
    DraftForward,
    Fault,
    LayerIds,
    Seams,
    TargetExtend,
    VocabMap,
    Weights,
)

IDS = [-1, 2, 5]
HIDDEN = 192


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    place = tmp_path_factory.mktemp("wired-right")
    with probed_pair(
        models, place, extra_args=["--enable-return-hidden-states", "--chunked-prefill-size", "64"]
    ) as run:
        yield run


@pytest.fixture(scope="module")
def answers(served: Probed, prompts: list[list[int]]) -> Any:
    return served.server.generate(prompts, max_new_tokens=NEW_TOKENS)


def test_tokens_equal_plain_decoding(answers: Any, plain: list[tuple[int, ...]]) -> None:
    assert tokens(answers) == plain


def test_the_draft_accepts(answers: Any) -> None:
    assert accept_length(answers) >= 2.8


def test_layer_ids(served: Probed, answers: Any) -> None:
    record = newest(served.trace(), LayerIds)
    assert record.configured == IDS
    assert (record.unit, record.configured_at) == ("output_id", "eagle_config")
    assert [(s.boundary, s.output_id) for s in record.slots] == [(0, -1), (3, 2), (6, 5)]
    assert record.stock_boundaries == IDS
    assert "captures 2 of 3" in record.stock_error
    assert record.patches_applied == ["embedding_capture"]
    assert record.draft_num_aux == 3


def test_captured_states_are_the_listed_boundaries(
    served: Probed, models: Models, prompts: list[list[int]]
) -> None:
    """SGLang returns the aux concatenation itself: against transformers' hidden states."""
    import torch
    from transformers import AutoModelForCausalLM

    prompt = prompts[0]
    served.server.flush_cache()
    [answer] = served.server.generate([prompt], max_new_tokens=1, return_hidden_states=True)
    states = torch.tensor(answer.meta_info["hidden_states"][0])
    assert states.shape == (len(prompt), 3 * HIDDEN)
    embedding = next(
        tensor
        for name, tensor in load_file(models["deepseek"] / "model.safetensors").items()
        if name.endswith("embed_tokens.weight")
    )
    assert torch.equal(states[:, :HIDDEN], embedding.float()[prompt])
    model = AutoModelForCausalLM.from_pretrained(models["deepseek"], dtype=torch.float32)
    with torch.no_grad():
        hidden = model(torch.tensor([prompt]), output_hidden_states=True).hidden_states
    for slot, boundary in enumerate((0, 3, 6)):
        block = states[:, slot * HIDDEN : (slot + 1) * HIDDEN]
        torch.testing.assert_close(block, hidden[boundary][0], rtol=1e-3, atol=1e-3)


def test_aux_states(served: Probed, answers: Any) -> None:
    records = only(served.trace(), AuxStates)
    assert {r.phase for r in records} == {"target_prefill", "target_verify"}
    for record in records:
        assert record.count == 3
        assert record.widths == [HIDDEN] * 3
        assert record.boundaries == [0, 3, 6]
        assert record.dtype == "float32"
        assert not record.in_graph_capture
        assert record.rows <= record.rows_total


def test_target_extend(served: Probed, answers: Any) -> None:
    record = only(served.trace(), TargetExtend)[0]
    assert record.worker_generation == "V2"
    assert record.capture_hidden_mode == "FULL"
    assert record.hidden_states_shape == record.handed_hidden_states_shape
    assert record.hidden_states_shape[-1] == 3 * HIDDEN
    assert sum(record.extend_lens) == record.hidden_states_shape[0]


def test_draft_forward(served: Probed, answers: Any) -> None:
    records = only(served.trace(), DraftForward)
    assert {(r.phase, r.fc, r.width_in) for r in records} == {
        ("extend_prefill", "taken", 3 * HIDDEN),
        ("extend_verify", "taken", 3 * HIDDEN),
        ("decode", "bypassed", HIDDEN),
    }
    assert {r.fc_in_features for r in records} == {3 * HIDDEN}


def test_vocab_map(served: Probed, models: Models, answers: Any) -> None:
    record = newest(served.trace(), VocabMap)
    tensors = load_file(models["deepseek-draft-embed"] / "model.safetensors")
    size = tensors["d2t"].numel()
    assert record.size == record.head_rows == size
    assert record.target_vocab_size == 2 * size
    assert record.in_force
    assert record.strictly_increasing
    assert record.equals_d2t_plus_arange
    assert record.agrees_with_t2d
    assert record.duplicates == 0
    assert record.full_map is None


def test_weights(served: Probed, answers: Any) -> None:
    record = newest(served.trace(), Weights)
    assert record.not_taken == []
    assert record.not_filled == []
    assert (record.embed_source, record.head_source) == ("target", "own")
    assert set(record.digests) == {"embed_tokens", "lm_head", "fc"}


def test_arguments(served: Probed, answers: Any) -> None:
    record = newest(served.trace(), Arguments)
    assert record.asked["speculative_algorithm"] == "EAGLE3"
    assert record.in_force["speculative_num_steps"] == 3
    assert record.target_architecture == "DeepseekV3ForCausalLM"
    assert record.draft_architecture == "LlamaForCausalLMEagle3"
    assert (record.worker_class, record.worker_generation) == ("EAGLEWorkerV2", "V2")


def test_seams(served: Probed, answers: Any) -> None:
    record = newest(served.trace(), Seams)
    assert record.release_proved
    states = {s.target: s.state for s in record.seams}
    assert "failed" not in states.values()
    patched = {target for target, state in states.items() if state == "patched"}
    for expected in (
        "sglang.srt.models.deepseek_v2:DeepseekV2ForCausalLM.set_eagle3_layers_to_capture",
        "sglang.srt.layers.logits_processor:LogitsProcessor.forward",
        "sglang.srt.models.llama_eagle3:LlamaModel.forward",
    ):
        assert expected in patched


def test_acceptance_equals_sglangs_own_totals(
    models: Models, prompts: list[list[int]], served: Probed
) -> None:
    answers = served.server.generate(prompts[:3], max_new_tokens=40)
    rids = {rid_of(a): a for a in answers}

    def rows(trace: Any) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {rid: [] for rid in rids}
        for record in trace.processes[0].verify_rounds():
            for rid, correct in zip(record.rids, record.correct_drafts, strict=True):
                if rid in found:
                    found[rid].append(correct)
        return found

    trace = served.trace(
        lambda t: all(len(r) >= rids[i].meta_info["spec_verify_ct"] for i, r in rows(t).items())
    )
    for rid, correct in rows(trace).items():
        meta = rids[rid].meta_info
        assert len(correct) == meta["spec_verify_ct"]
        assert sum(correct) == meta["spec_num_correct_drafts"]
        histogram = [correct.count(k) for k in range(len(meta["spec_correct_drafts_histogram"]))]
        assert histogram == meta["spec_correct_drafts_histogram"]


def test_rounds_carry_context_and_position(served: Probed, prompts: list[list[int]]) -> None:
    [answer] = served.server.generate([prompts[1]], max_new_tokens=24)
    rid = rid_of(answer)

    def mine(trace: Any) -> list[tuple[int, int, int]]:
        return [
            (record.rounds[i], record.context_lens[i], record.correct_drafts[i])
            for record in trace.processes[0].verify_rounds()
            for i, r in enumerate(record.rids)
            if r == rid
        ]

    trace = served.trace(lambda t: len(mine(t)) >= answer.meta_info["spec_verify_ct"])
    context = len(prompts[1]) + 1
    for expected_round, (number, context_len, correct) in enumerate(mine(trace)):
        assert number == expected_round
        assert context_len == context
        context += correct + 1


def test_the_report_finds_nothing_wrong(served: Probed, answers: Any) -> None:
    served.rounds_match(answers)
    shown = cli("report", str(served.traces))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "E3P1" not in shown.stdout
    assert "E3P2" not in shown.stdout
    assert accept(served.trace().processes[0].rounds).accept_length >= 2.8


def test_show_prints_json_lines(served: Probed, answers: Any) -> None:
    shown = cli("show", str(served.traces), "--record", "layer_ids")
    assert shown.returncode == 0, shown.stderr
    [line] = shown.stdout.splitlines()
    assert json.loads(line)["configured"] == IDS


def test_no_fault_of_ours(served: Probed, answers: Any) -> None:
    assert only(served.trace(), Fault) == []
    losses = served.trace().processes[0].losses
    assert not losses.dropped_records
    assert not losses.write_errors


def test_nothing_of_the_prompt_is_in_the_trace(served: Probed, answers: Any) -> None:
    for file in Path(served.traces).glob("*.jsonl"):
        assert file.stat().st_mode & 0o777 == 0o600
        text = file.read_text()
        for answer in answers:
            assert answer.meta_info["id"] not in text
