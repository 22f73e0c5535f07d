"""Every place of SGLang the probe attaches to: one row each, with a why.

This table is the whole of our knowledge of SGLang's layout by release. The wrapping, the seam
report in the log, the contract test (which checks each row against the wheels by ``ast``) and
docs/compatibility.md are all made from it. A seam that moved between releases has several rows of
the same name with ranges that do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .embedding_capture import EMBEDDING_CAPTURE
from .versions import Releases


@dataclass(frozen=True)
class Seam:
    """One patched target.

    Args:
        name: what the probe calls it; handlers are bound to names.
        module: dotted module that *defines* the target (wrapped when the host imports it).
        attribute: ``Class.method`` or ``function`` in that module.
        parameters: parameters our handlers take by name. One that a release lacks reads as
            ``None`` there; the seam report says so.
        releases: where the row holds.
        why: what we need here, for people who read the log.
    """

    name: str
    module: str
    attribute: str
    parameters: tuple[str, ...]
    releases: Releases
    why: str

    @property
    def target(self) -> str:
        return f"{self.module}:{self.attribute}"


_EXTEND_LOGITS_WHY = (
    "logits of the draft extend, of which the first draft of the next round is made"
)
_REQUEST_OUTPUT_WHY = "every finished request passes here, with the totals that its answer reports"
_LAYER_IDS_WHY = (
    "the list of aux layer ids arrives here (before any graph is captured, from 0.5.11 on); "
    "-1 and the order of the list are honoured here"
)


def _layer_ids(module: str, cls: str, since: str = "0.5.9") -> Seam:
    return Seam(
        name="layer_ids",
        module=f"sglang.srt.models.{module}",
        attribute=f"{cls}.set_eagle3_layers_to_capture",
        parameters=("layer_ids",),
        releases=Releases(since),
        why=_LAYER_IDS_WHY,
    )


def _embedding_copies() -> tuple[Seam, ...]:
    """Forwards of inner models that get the embedding output put in."""
    return tuple(
        Seam(
            name="embedding_copy",
            module=capture.inner.partition(":")[0],
            attribute=f"{capture.inner.partition(':')[2]}.forward",
            parameters=("input_ids", "input_embeds"),
            releases=capture.by_copy,
            why=(
                "these releases cannot capture boundary 0 here; a copy of the embedding output is "
                "put in front of what they capture"
            ),
        )
        for capture in EMBEDDING_CAPTURE
        if capture.by_copy is not None
    )


_V2 = "sglang.srt.speculative.eagle_worker_v2"
_V1 = "sglang.srt.speculative.eagle_worker"


def _rounds(module: str, worker: str, draft_worker: str, releases: Releases) -> tuple[Seam, ...]:
    """The units of work of a round; level ``stats`` joins device rows to requests by them."""
    is_v1 = worker == draft_worker
    extend = "forward_draft_extend_after_decode" if is_v1 else "_draft_extend_for_decode"
    return (
        Seam(
            name="verify_round",
            module=module,
            attribute=f"{worker}.verify",
            parameters=("batch",),
            releases=releases,
            why="one verify forward and its requests",
        ),
        Seam(
            name="draft_round",
            module=module,
            attribute=f"{draft_worker}.draft",
            parameters=() if releases.until is None else ("batch",),
            releases=releases,
            why="the draft decode forwards of one round and their requests",
        ),
        Seam(
            name="draft_steps",
            module=module,
            attribute=f"{draft_worker}.draft_forward",
            parameters=("forward_batch",),
            releases=releases,
            why="the loop over draft decode steps begins; captured whole into a graph",
        ),
        Seam(
            name="draft_extend_round",
            module=module,
            attribute=f"{draft_worker}.{extend}",
            parameters=("batch",),
            releases=releases,
            why="the draft extend after a verify round and its requests",
        ),
    )


MAIN_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="command_line",
        module="sglang.srt.server_args",
        attribute="ServerArgs.add_cli_args",
        parameters=("parser",),
        releases=Releases(),
        why="adds the flags of the probe; the only thing wrapped while the probe is off",
    ),
)
"""Wrapped in the process that parses the command line."""

SCHEDULER_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="scheduler_start",
        module="sglang.srt.managers.scheduler",
        attribute="Scheduler.__init__",
        parameters=("server_args",),
        releases=Releases(),
        why="arguments and ranks on entry; on return everything is built and logging is set up",
    ),
    Seam(
        name="target_loaded",
        module="sglang.srt.model_executor.model_runner",
        attribute="ModelRunner.load_model",
        parameters=(),
        releases=Releases("0.5.9", "0.5.10.post1"),
        why=(
            "the runner knows the configured layer ids here, before kernel warm-up and graph "
            "capture call the setter without them"
        ),
    ),
    _layer_ids("deepseek_v2", "DeepseekV2ForCausalLM"),
    _layer_ids("llama", "LlamaForCausalLM"),
    _layer_ids("qwen2", "Qwen2ForCausalLM"),
    _layer_ids("qwen3", "Qwen3ForCausalLM"),
    _layer_ids("qwen2_moe", "Qwen2MoeForCausalLM"),
    _layer_ids("qwen3_moe", "Qwen3MoeForCausalLM"),
    _layer_ids("glm4_moe", "Glm4MoeForCausalLM"),
    _layer_ids("gpt_oss", "GptOssForCausalLM"),
    *_embedding_copies(),
    Seam(
        name="layer_ids_delegation",
        module="sglang.srt.models.kimi_k25",
        attribute="KimiK25ForConditionalGeneration.set_eagle3_layers_to_capture",
        parameters=("layer_ids",),
        releases=Releases("0.5.10"),
        why=(
            "hands the list to its DeepSeek language model unchanged; watched so that the log "
            "names the served class, converted there and only there"
        ),
    ),
    Seam(
        name="target_logits",
        module="sglang.srt.layers.logits_processor",
        attribute="LogitsProcessor.forward",
        parameters=("hidden_states", "logits_metadata", "aux_hidden_states"),
        releases=Releases(),
        why=(
            "every target forward, eager or under graph capture, passes its aux hidden states "
            "here before they are concatenated for the draft"
        ),
    ),
    Seam(
        name="target_extend_v1",
        module=_V1,
        attribute="EAGLEWorker.forward_target_extend",
        parameters=("batch",),
        releases=Releases("0.5.9", "0.5.12.post1"),
        why="V1 worker: what the target's prefill returns for the draft",
    ),
    Seam(
        name="draft_extend_v1",
        module=_V1,
        attribute="EAGLEWorker.forward_draft_extend",
        parameters=("batch", "hidden_states", "next_token_ids"),
        releases=Releases("0.5.9", "0.5.12.post1"),
        why="V1 worker: what of the target's prefill is handed to the draft",
    ),
    Seam(
        name="target_extend_v2",
        module=_V2,
        attribute="EagleDraftWorker._draft_extend_for_prefill",
        parameters=("batch", "target_hidden_states", "next_token_ids"),
        releases=Releases(),
        why="V2 worker: what of the target's prefill is handed to the draft",
    ),
    Seam(
        name="draft_forward",
        module="sglang.srt.models.llama_eagle3",
        attribute="LlamaModel.forward",
        parameters=("input_ids", "forward_batch", "input_embeds"),
        releases=Releases(),
        why="width that reaches the draft, and whether fc projects it",
    ),
    Seam(
        name="draft_forward",
        module="sglang.srt.models.kimi_k25_eagle3",
        attribute="Eagle3MLAModel.forward",
        parameters=("input_ids", "forward_batch", "input_embeds"),
        releases=Releases("0.5.12"),
        why="width that reaches the MLA draft, and whether fc projects it",
    ),
    Seam(
        name="draft_weights",
        module="sglang.srt.models.llama_eagle3",
        attribute="LlamaForCausalLMEagle3.load_weights",
        parameters=("weights",),
        releases=Releases(),
        why="checkpoint names and parameters, matched by watching the load; d2t and t2d",
    ),
    Seam(
        name="draft_weights",
        module="sglang.srt.models.kimi_k25_eagle3",
        attribute="Eagle3DeepseekV2ForCausalLM.load_weights",
        parameters=("weights",),
        releases=Releases("0.5.12"),
        why="checkpoint names and parameters, matched by watching the load; d2t and t2d",
    ),
    Seam(
        name="draft_built",
        module=_V1,
        attribute="EAGLEWorker.__init__",
        parameters=("server_args", "target_worker"),
        releases=Releases("0.5.9", "0.5.12.post1"),
        why="V1 worker: map, embedding and head are settled when this returns",
    ),
    Seam(
        name="draft_built",
        module=_V2,
        attribute="EagleDraftWorker.init_lm_head",
        parameters=(),
        releases=Releases(),
        why="V2 worker: map, embedding and head are settled when this returns",
    ),
    Seam(
        name="verify_result_v1",
        module=_V1,
        attribute="EAGLEWorker.forward_batch_generation",
        parameters=("batch",),
        releases=Releases("0.5.9", "0.5.12.post1"),
        why="V1 worker: its result carries the correct drafts per request as a list",
    ),
    *_rounds(_V1, "EAGLEWorker", "EAGLEWorker", Releases("0.5.9", "0.5.12.post1")),
    *_rounds(_V2, "EAGLEWorkerV2", "EagleDraftWorker", Releases()),
    Seam(
        name="verify_result",
        module="sglang.srt.managers.scheduler_output_processor_mixin",
        attribute="SchedulerOutputProcessorMixin._resolve_spec_overlap_token_ids",
        parameters=("result", "batch"),
        releases=Releases("0.5.9", "0.5.11"),
        why="accept lengths are on the CPU here, after SGLang's own copy",
    ),
    Seam(
        name="verify_result",
        module="sglang.srt.managers.scheduler_output_processor_mixin",
        attribute="SchedulerOutputProcessorMixin._resolve_spec_overlap_tokens",
        parameters=("result", "batch"),
        releases=Releases("0.5.12", "0.5.12.post1"),
        why="accept lengths are on the CPU here, after SGLang's own copy",
    ),
    Seam(
        name="verify_result",
        module="sglang.srt.managers.scheduler_components.batch_result_processor",
        attribute="SchedulerBatchResultProcessor._resolve_spec_v2_tokens",
        parameters=("result", "batch"),
        releases=Releases("0.5.13"),
        why="accept lengths are on the CPU here, after SGLang's own copy",
    ),
    Seam(
        name="worker_forward",
        module=_V2,
        attribute="EAGLEWorkerV2.forward_batch_generation",
        parameters=(),
        releases=Releases(),
        why="V2 worker: a prefill of target and draft, or a whole round",
    ),
    Seam(
        name="target_forward",
        module="sglang.srt.managers.tp_worker",
        attribute="TpModelWorker.forward_batch_generation",
        parameters=(),
        releases=Releases(),
        why="prefill and decode of a server without speculation, to compare with",
    ),
    Seam(
        name="draft_extend_graph",
        module="sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner",
        attribute="EAGLEDraftExtendCudaGraphRunner.replay",
        parameters=("forward_batch",),
        releases=Releases("0.5.9", "0.5.13.post1"),
        why=_EXTEND_LOGITS_WHY,
    ),
    Seam(
        name="draft_extend_graph",
        module="sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner",
        attribute="EAGLEDraftExtendCudaGraphRunner.execute",
        parameters=("forward_batch",),
        releases=Releases("0.5.14"),
        why=_EXTEND_LOGITS_WHY,
    ),
    Seam(
        name="draft_select",
        module="sglang.srt.speculative.spec_utils",
        attribute="select_top_k_tokens",
        parameters=("i",),
        releases=Releases(),
        why="candidates, scores and states that a draft step keeps; part of the draft's graph",
    ),
    Seam(
        name="request_output",
        module="sglang.srt.managers.scheduler_output_processor_mixin",
        attribute="SchedulerOutputProcessorMixin.stream_output",
        parameters=("reqs", "skip_req"),
        releases=Releases("0.5.9", "0.5.12.post1"),
        why=_REQUEST_OUTPUT_WHY,
    ),
    Seam(
        name="request_output",
        module="sglang.srt.managers.scheduler_components.output_streamer",
        attribute="SchedulerOutputStreamer.stream_output",
        parameters=("reqs", "skip_req"),
        releases=Releases("0.5.13"),
        why=_REQUEST_OUTPUT_WHY,
    ),
)
"""Wrapped in scheduler processes, and only while the probe is on."""


def seams_for(release: str, rows: Iterable[Seam]) -> list[Seam]:
    """The rows that hold in a release, in table order."""
    return [row for row in rows if row.releases.contains(release)]
