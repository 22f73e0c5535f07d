"""What the taps and patches take for granted about the inside of SGLang, one row each.

A seam's row says where a handler is put; a fact says what the handler will find there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_eagle3_probe.host.versions import Releases

Kind = Literal["assigns", "attribute", "calls", "reads", "returns", "text"]

_ALL = Releases()
_V1 = Releases("0.5.9", "0.5.12.post1")

_BATCH = "sglang.srt.managers.schedule_batch"
_DEEPSEEK = "sglang.srt.models.deepseek_v2"
_DRAFT = "sglang.srt.models.llama_eagle3"
_INFO = "sglang.srt.speculative.eagle_info"
_KIMI = "sglang.srt.models.kimi_k25"
_KIMI_DRAFT = "sglang.srt.models.kimi_k25_eagle3"
_LLAMA = "sglang.srt.models.llama"
_MIXIN = "sglang.srt.managers.scheduler_output_processor_mixin"
_PROCESSOR = "sglang.srt.managers.scheduler_components.batch_result_processor"
_RESULT = "sglang.srt.managers.utils"
_SCHEDULER = "sglang.srt.managers.scheduler"
_STREAMER = "sglang.srt.managers.scheduler_components.output_streamer"
_WORKER_V1 = "sglang.srt.speculative.eagle_worker"
_WORKER_V2 = "sglang.srt.speculative.eagle_worker_v2"


@dataclass(frozen=True)
class Fact:
    """One claim about a module's code, checked by ``ast``.

    Args:
        module: dotted module.
        scope: ``Class``, ``Class.method`` or ``function``; "" for the whole module.
        kind: ``assigns``: the needle is assigned to; ``attribute``: a field, a method, or put on
            ``self``; ``calls``: it is called; ``reads``: such an attribute is named; ``returns``:
            every tuple returned starts with these; ``text``: the code, laid out by
            ``ast.unparse``, holds it.
        needle: what is looked for.
        releases: where the fact holds. Where it holds beyond that, a warning says so.
        why: what relies on it.
    """

    module: str
    scope: str
    kind: Kind
    needle: str
    releases: Releases
    why: str

    @property
    def name(self) -> str:
        """Short name for reports."""
        scope = self.scope or self.module.rpartition(".")[2]
        return f"{scope} {self.kind} {self.needle}"


def _setter(module: str, cls: str) -> tuple[Fact, ...]:
    """A target class's layer ids, from the setter to the logits processor."""
    setter = f"{cls}.set_eagle3_layers_to_capture"
    ids, inner = "self.model.layers_to_capture", cls.replace("ForCausalLM", "Model")
    return (
        Fact(module, setter, "assigns", ids, _ALL, "boundaries are read and set here"),
        Fact(module, setter, "assigns", "self.capture_aux_hidden_states", _ALL, "capture is on"),
        Fact(module, setter, "text", f"{ids} = [2, num_layers // 2, num_layers - 3]", _ALL,
             "the default boundaries that reports name"),
        Fact(module, inner, "attribute", "layers_to_capture", _ALL, "what the forward looks at"),
        Fact(module, f"{inner}.forward", "text", "if i in self.layers_to_capture", _ALL,
             "ids are boundaries: captured at the input of layer i, in ascending order"),
        Fact(module, f"{cls}.forward", "calls", "self.logits_processor", _ALL,
             "target_logits sees every target forward"),
    )  # fmt: skip


def _carries(module: str, cls: str, releases: Releases, why: str, *names: str) -> tuple[Fact, ...]:
    return tuple(Fact(module, cls, "attribute", name, releases, why) for name in names)


def _resolve(module: str, method: str, releases: Releases) -> tuple[Fact, ...]:
    return tuple(
        Fact(module, method, "text", f"assert result.{field}.is_cpu", releases,
             "verify_result reads it without waiting for the device")
        for field in ("accept_lens", "next_token_ids")
    )  # fmt: skip


def _correct_drafts(field: str, in_worker: Releases, in_output: Releases) -> tuple[Fact, ...]:
    """V1's name for correct drafts per request. The result's field alone does not tell: from 0.5.16
    on ``accept_length_per_req_cpu`` is back for diffusion models, and ``None`` under EAGLE."""
    return (
        Fact(_WORKER_V1, "EAGLEWorker.forward_batch_generation", "text",
             f"{field}=verify_output.{field}", in_worker,
             "V1: correct drafts per request, on the CPU, without the bonus token"),
        Fact(_INFO, "EagleVerifyOutput", "attribute", field, in_output,
             "the same, in what V1's verify returns second"),
    )  # fmt: skip


FACTS: tuple[Fact, ...] = (
    *_setter(_DEEPSEEK, "DeepseekV2ForCausalLM"),
    *_setter(_LLAMA, "LlamaForCausalLM"),
    Fact(_DEEPSEEK, "DeepseekV2ForCausalLM.set_eagle3_layers_to_capture", "text",
         "layer_ids[0] == 1", Releases("0.5.13"),
         "DeepSeek adds 1 only to lists that start with 1; before, to every list"),
    Fact(_DEEPSEEK, "DeepseekV2Model.forward", "text",
         "aux_hidden_states.append(hidden_states + residual)", Releases("0.5.9", "0.5.13.post1"),
         "boundary 0 raises TypeError here: there is no residual before layer 0"),
    Fact(_DEEPSEEK, "DeepseekV2Model.forward", "text", "captured_last_layer_outputs=",
         Releases("0.5.14"), "boundary 0 is captured like any other"),
    Fact(_LLAMA, "LlamaModel.forward", "text",
         "aux_hidden_states.append(hidden_states + residual)", Releases("0.5.9", "0.5.21"),
         "boundary 0 raises TypeError here: there is no residual before layer 0"),
    Fact(_LLAMA, "LlamaModel.forward", "text", "aux_hidden_states.capture", Releases("0.5.22"),
         "boundary 0 is captured like any other"),
    Fact(_KIMI, "KimiK25ForConditionalGeneration.set_eagle3_layers_to_capture", "calls",
         "self.language_model.set_eagle3_layers_to_capture", Releases("0.5.10"),
         "only delegates: ids must be converted in the language model alone"),
    Fact(_DRAFT, "LlamaModel", "attribute", "fc", _ALL, "the projection draft_forward looks at"),
    Fact(_DRAFT, "LlamaModel", "attribute", "embed_tokens", _ALL, "the draft's own width"),
    Fact(_DRAFT, "LlamaModel.forward", "text", "hidden_states.shape[-1] != embeds.shape[-1]", _ALL,
         "fc projects only where the widths differ"),
    Fact(_DRAFT, "LlamaForCausalLMEagle3", "attribute", "hot_token_id", _ALL, "the d2t map"),
    Fact(_DRAFT, "LlamaForCausalLMEagle3.load_weights", "text", "'d2t' in name", _ALL,
         "any name that holds d2t fills the map"),
    Fact(_KIMI_DRAFT, "Eagle3MLAModel", "attribute", "fc", Releases("0.5.12"),
         "the projection draft_forward looks at"),
    Fact(_KIMI_DRAFT, "Eagle3MLAModel.forward", "text",
         "hidden_states.shape[-1] != embeds.shape[-1]", Releases("0.5.12"),
         "fc projects only where the widths differ"),
    Fact(_KIMI_DRAFT, "Eagle3DeepseekV2ForCausalLM", "attribute", "hot_token_id",
         Releases("0.5.12"), "the d2t map"),
    Fact(_KIMI_DRAFT, "Eagle3DeepseekV2ForCausalLM.load_weights", "text",
         "name == 'd2t' or name.endswith('.d2t')", Releases("0.5.12"), "which name fills the map"),
    Fact(_WORKER_V1, "EAGLEWorker", "attribute", "hot_token_id", _V1, "the map in force"),
    Fact(_WORKER_V1, "EAGLEWorker.forward_target_extend", "returns",
         "logits_output, next_token_ids", _V1, "read by index: three items in 0.5.9, then four"),
    Fact(_WORKER_V1, "EAGLEWorker.forward_batch_generation", "calls",
         "self.forward_target_extend", _V1, "target_extend_v1 is on the prefill's path"),
    Fact(_WORKER_V1, "EAGLEWorker.forward_batch_generation", "calls", "self.forward_draft_extend",
         _V1, "draft_extend_v1 is on the prefill's path"),
    Fact(_WORKER_V2, "EagleDraftWorker", "attribute", "hot_token_id", _ALL, "the map in force"),
    Fact(_WORKER_V2, "EagleDraftWorker", "attribute", "draft_runner", _ALL, "the draft's runner"),
    Fact(_WORKER_V2, "", "calls", "self.draft_worker._draft_extend_for_prefill", _ALL,
         "target_extend_v2 is on the prefill's path"),
    Fact(_WORKER_V2, "", "calls", "self.init_lm_head", _ALL, "draft_built is called at start"),
    Fact(_SCHEDULER, "Scheduler", "attribute", "draft_worker", _ALL, "the worker, V1 or V2"),
    Fact(_SCHEDULER, "Scheduler", "attribute", "tp_rank", _V1, "where ranks are read"),
    Fact(_SCHEDULER, "Scheduler", "attribute", "ps", Releases("0.5.13", "0.5.20"),
         "where ranks are read"),
    Fact(_SCHEDULER, "Scheduler", "reads", "get_parallel().tp_rank", Releases("0.5.21"),
         "where ranks are read"),
    *_carries(_WORKER_V1, "EAGLEWorker", _V1, "how the worker is set up",
              "draft_model_runner", "target_worker", "topk", "speculative_num_steps",
              "speculative_num_draft_tokens"),
    *_carries(_WORKER_V2, "EAGLEWorkerV2", _ALL, "how the worker is set up",
              "topk", "speculative_num_steps", "speculative_num_draft_tokens"),
    *_carries(_SCHEDULER, "Scheduler", _ALL, "the workers", "tp_worker", "model_worker"),
    *_carries(_PROCESSOR, "SchedulerBatchResultProcessor", Releases("0.5.13"), "the workers",
              "draft_worker", "model_worker"),
    *_carries(_BATCH, "Req", _ALL, "one request of a verify round",
              "rid", "origin_input_ids", "output_ids", "is_retracted", "finished"),
    Fact(_BATCH, "Req", "attribute", "spec_verify_ct", _ALL, "rounds of a request so far"),
    *_carries(_BATCH, "Req", _ALL, "a request's beginning and end",
              "sampling_params", "grammar", "cached_tokens", "extend_batch_idx", "finished_reason",
              "finished_output", "finished_len", "retraction_count"),
    Fact(_BATCH, "Req", "attribute", "spec_accepted_tokens", Releases("0.5.9", "0.5.10.post1"),
         "correct drafts of a request"),
    Fact(_BATCH, "Req", "attribute", "spec_acceptance_histogram",
         Releases("0.5.9", "0.5.11"), "rounds of a request by correct drafts"),
    Fact(_BATCH, "Req", "attribute", "spec_accepted_drafts", Releases("0.5.11", "0.5.11"),
         "correct drafts of a request"),
    *_carries(_BATCH, "Req", Releases("0.5.12"), "what request_end repeats",
              "spec_num_correct_drafts", "spec_correct_drafts_histogram"),
    Fact(_MIXIN, "", "text", "req.finished_output = True", Releases("0.5.9", "0.5.12.post1"),
         "request_output sees each end once"),
    Fact(_STREAMER, "", "text", "req.finished_output = True", Releases("0.5.13"),
         "request_output sees each end once"),
    *_carries(_INFO, "EagleVerifyInput", _ALL, "what refusals reads of a round",
              "draft_token", "draft_token_num", "spec_steps", "topk"),
    Fact(_WORKER_V2, "EagleDraftWorker", "attribute", "target_worker", _ALL,
         "the vocabulary that refusals turns the map around in"),
    Fact(_WORKER_V2, "EagleDraftWorker", "attribute", "req_to_token_pool", Releases("0.5.14"),
         "how many requests there can be; before, its runner's is asked"),
    Fact(_WORKER_V2, "EagleDraftWorker._draft_extend_for_decode", "text",
         "draft_logits_output.next_token_logits[select_index]", _ALL,
         "the extend's logits output holds one row a request when the extend returns"),
    Fact(_RESULT, "GenerationBatchResult", "attribute", "logits_output", _ALL,
         "target logits of a round"),
    Fact(_BATCH, "ScheduleBatch", "attribute", "req_pool_indices", _ALL,
         "where a request's first draft logits are kept"),
    Fact(_BATCH, "ScheduleBatch", "attribute", "extend_lens", _ALL, "rows of each prompt"),
    Fact(_BATCH, "ModelWorkerBatch", "attribute", "extend_seq_lens", _V1,
         "rows of each prompt, in the batch that V2 passed then"),
    Fact(_BATCH, "ModelWorkerBatch", "attribute", "reqs", _V1, "the batch that V2 passed then"),
    Fact(_RESULT, "GenerationBatchResult", "attribute", "accept_lens", _ALL,
         "drafts accepted plus the bonus token, per request; V2 only"),
    Fact(_RESULT, "GenerationBatchResult", "attribute", "speculative_num_draft_tokens",
         Releases("0.5.12"), "rows of a round per request; before, the worker's number"),
    Fact(_RESULT, "GenerationBatchResult", "attribute", "accept_index", Releases("0.5.21"),
         "its width is the number of steps of this round plus one"),
    Fact(_RESULT, "GenerationBatchResult", "attribute", "num_correct_drafts_per_req_cpu",
         Releases("0.5.12"), "correct drafts per request, without the bonus token"),
    *_correct_drafts("accept_length_per_req_cpu", Releases("0.5.9", "0.5.10.post1"),
                     Releases("0.5.9", "0.5.10.post1")),
    *_correct_drafts("num_accepted_drafts_per_req_cpu", Releases("0.5.11", "0.5.11"),
                     Releases("0.5.11", "0.5.11")),
    *_correct_drafts("num_correct_drafts_per_req_cpu", Releases("0.5.12", "0.5.12.post1"),
                     Releases("0.5.12", "0.5.13.post1")),
    *_resolve(_MIXIN, "SchedulerOutputProcessorMixin._resolve_spec_overlap_token_ids",
              Releases("0.5.9", "0.5.11")),
    *_resolve(_MIXIN, "SchedulerOutputProcessorMixin._resolve_spec_overlap_tokens",
              Releases("0.5.12", "0.5.12.post1")),
    *_resolve(_PROCESSOR, "SchedulerBatchResultProcessor._resolve_spec_v2_tokens",
              Releases("0.5.13")),
    Fact(_MIXIN, "SchedulerOutputProcessorMixin._resolve_spec_overlap_tokens", "calls",
         "req.finished", Releases("0.5.12", "0.5.12.post1"),
         "rows of requests that ended meanwhile are not counted; up to 0.5.11 they are"),
    Fact(_PROCESSOR, "SchedulerBatchResultProcessor._resolve_spec_v2_tokens", "calls",
         "req.finished", Releases("0.5.13"),
         "rows of requests that ended meanwhile are not counted"),
    Fact("sglang.srt.model_executor.cuda_graph_runner", "", "text",
         "model.set_eagle3_layers_to_capture()", Releases("0.5.9", "0.5.10.post1"),
         "graphs are captured with the default boundaries, before the configured ids arrive"),
    Fact("sglang.srt.plugins", "", "text", "'sglang.srt.plugins'", Releases("0.5.11"),
         "the entry-point group that loads the probe"),
)  # fmt: skip
"""Checked on every release; extend it with whatever a handler starts to rely on."""
