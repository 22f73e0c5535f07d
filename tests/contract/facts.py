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
_BEFORE_IDS = Releases("0.5.9", "0.5.10.post1")

_BATCH = "sglang.srt.managers.schedule_batch"
_DEEPSEEK = "sglang.srt.models.deepseek_v2"
_DRAFT = "sglang.srt.models.llama_eagle3"
_INFO = "sglang.srt.speculative.eagle_info"
_MODELS = "sglang.srt.models"
_KIMI = "sglang.srt.models.kimi_k25"
_KIMI_DRAFT = "sglang.srt.models.kimi_k25_eagle3"
_LLAMA = "sglang.srt.models.llama"
_MIXIN = "sglang.srt.managers.scheduler_output_processor_mixin"
_PROCESSOR = "sglang.srt.managers.scheduler_components.batch_result_processor"
_RESULT = "sglang.srt.managers.utils"
_SCHEDULER = "sglang.srt.managers.scheduler"
_STREAMER = "sglang.srt.managers.scheduler_components.output_streamer"
_RUNNER = "sglang.srt.model_executor.model_runner"
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


def _copies(module: str, inner: str) -> tuple[Fact, ...]:
    """What the copy of the embedding output relies on, in a forward that puts it into a list."""
    return tuple(
        Fact(f"{_MODELS}.{module}", f"{inner}.forward", "text", text, _ALL, why)
        for text, why in (
            ("self.embed_tokens(input_ids)", "how the copy is made"),
            ("hidden_states = input_embeds", "an embedding that is handed in is used as it is"),
            ("return (hidden_states, aux_hidden_states)", "to whose front the copy goes"),
        )
    )


def _adds_one(module: str, cls: str) -> tuple[Fact, ...]:
    """A target class that takes any list without -1 for output ids."""
    setter, module = f"{cls}.set_eagle3_layers_to_capture", f"{_MODELS}.{module}"
    return (
        Fact(module, setter, "assigns", "self.capture_aux_hidden_states", _ALL, "capture is on"),
        Fact(module, setter, "text", "[val + 1 for val in layer_ids]", _ALL, "what it reads"),
        Fact(module, f"{cls}.forward", "calls", "self.logits_processor", _ALL,
             "target_logits sees every target forward"),
    )  # fmt: skip


def _entered(module: str, inner: str, releases: Releases) -> Fact:
    return Fact(f"{_MODELS}.{module}", f"{inner}.forward", "text",
                "if i in self.layers_to_capture", releases,
                "ids are boundaries: captured at the input of layer i, ascending")  # fmt: skip


def _appended(module: str, inner: str, text: str, releases: Releases, why: str) -> Fact:
    return Fact(f"{_MODELS}.{module}", f"{inner}.forward", "text",
                f"aux_hidden_states.append({text})", releases, why)  # fmt: skip


_SUM = "hidden_states + residual"
_SUM_OR_ITSELF = "hidden_states + residual if residual is not None else hidden_states"
_NO_RESIDUAL = "boundary 0 raises TypeError here: there is no residual before layer 0"
_ALIAS = "boundary 0 is the tensor that the layers write into"

FAMILIES: tuple[Fact, ...] = (
    *_copies("llama", "LlamaModel"),
    *_adds_one("qwen2", "Qwen2ForCausalLM"),
    *_copies("qwen2", "Qwen2Model"),
    _entered("qwen2", "Qwen2Model", _ALL),
    _appended("qwen2", "Qwen2Model", _SUM_OR_ITSELF, Releases("0.5.9", "0.5.20"), _ALIAS),
    *_adds_one("qwen3", "Qwen3ForCausalLM"),
    _entered("qwen3", "Qwen3Model", Releases("0.5.21")),
    *_adds_one("qwen2_moe", "Qwen2MoeForCausalLM"),
    Fact(f"{_MODELS}.qwen2_moe", "Qwen2MoeModel.forward", "text",
         "getattr(layer, '_is_layer_to_capture', False)", _ALL,
         "a flag of the layer decides, not the list"),
    Fact(f"{_MODELS}.qwen2_moe", "Qwen2MoeModel.set_eagle3_layers_to_capture", "text",
         "setattr(self.layers[layer_id], '_is_layer_to_capture', True)", _ALL,
         "the flag is never taken back"),
    *_adds_one("qwen3_moe", "Qwen3MoeForCausalLM"),
    *_adds_one("glm4_moe", "Glm4MoeForCausalLM"),
    *_copies("glm4_moe", "Glm4MoeModel"),
    _entered("glm4_moe", "Glm4MoeModel", _ALL),
    _appended("glm4_moe", "Glm4MoeModel", _SUM, Releases("0.5.9", "0.5.20"), _NO_RESIDUAL),
    *_adds_one("gpt_oss", "GptOssForCausalLM"),
    *_copies("gpt_oss", "GptOssModel"),
    _appended("gpt_oss", "GptOssModel", _SUM, Releases("0.5.9", "0.5.16"), _NO_RESIDUAL),
    _appended("gpt_oss", "GptOssModel", _SUM_OR_ITSELF, Releases("0.5.17", "0.5.20"), _ALIAS),
    Fact(f"{_MODELS}.gpt_oss", "GptOssForCausalLM.set_eagle3_layers_to_capture", "text",
         "max(layer_ids) == num_layers", Releases("0.5.17"),
         "a list that reaches N is taken as boundaries, and N is captured"),
)  # fmt: skip
"""Targets beside DeepSeek and Llama; ``contract/families`` runs them."""


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
    *FAMILIES,
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
    Fact(_WORKER_V2, "EagleDraftWorker.draft_forward", "returns",
         "parent_list, top_scores_index", _ALL, "where each draft of a tree stood in the search"),
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
    Fact(_RUNNER, "ModelRunner._dummy_run", "text", "self.model.set_eagle3_layers_to_capture()",
         _BEFORE_IDS, "so is what warms kernels up"),
    Fact(_RUNNER, "ModelRunner.initialize", "text",
         "self.model.set_eagle3_layers_to_capture(self.eagle_aux_hidden_state_layer_ids)",
         _BEFORE_IDS, "the configured ids arrive here, after init_device_graphs"),
    *_carries(_RUNNER, "ModelRunner", Releases("0.5.9", "0.5.15.post1"),
              "read when load_model returns, up to 0.5.10.post1",
              "eagle_aux_hidden_state_layer_ids", "eagle_use_aux_hidden_state"),
    Fact(_RUNNER, "ModelRunner", "attribute", "is_draft_worker", _ALL, "whose ids they are"),
    Fact(_RUNNER, "ModelRunner.initialize", "calls", "self.load_model", _ALL,
         "target_loaded comes before the graphs"),
    Fact(_DEEPSEEK, "DeepseekV2Model.forward", "text", "self.embed_tokens(input_ids)", _ALL,
         "how the copy is made where the class cannot capture boundary 0"),
    Fact(_DEEPSEEK, "DeepseekV2Model.forward", "text", "hidden_states = input_embeds", _ALL,
         "an embedding that is handed in is used as it is"),
    Fact(_DEEPSEEK, "DeepseekV2Model.forward", "text", "return (hidden_states, aux_hidden_states)",
         Releases("0.5.9", "0.5.16"), "a list, to whose front the copy goes"),
    Fact("sglang.srt.plugins", "", "text", "'sglang.srt.plugins'", Releases("0.5.11"),
         "the entry-point group that loads the probe"),
)  # fmt: skip
"""Checked on every release; extend it with whatever a handler starts to rely on."""
