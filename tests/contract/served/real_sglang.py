"""Runs inside one SGLang release and says what its own code does with a case; never judges.

Started as a script: reads ``{"arguments": [...], "drafts": [...], "targets": [...]}`` from the file
named first and writes a list of answers for each to the file named second. The release is whatever
``sglang`` the search path finds, in a process of its own, so that several can be asked in turn.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NOT_A_NUMBER = float("nan")
MARK = 7.0
GROUP_FILE = "rendezvous"


def main(given: Path, answer: Path) -> None:
    """Answer every question of the file."""
    allow_second_registration()
    questions = json.loads(given.read_text(encoding="utf-8"))
    work = given.parent
    answers: dict[str, list[Any]] = {
        "arguments": [guarded(arguments_in_force, case) for case in questions["arguments"]]
    }
    start_process_group(questions["start"], work)
    answers["drafts"] = [guarded(draft_weights, case) for case in questions["drafts"]]
    answers["overrides"] = [guarded(overrides_in_force, case) for case in questions["overrides"]]
    answers["targets"] = [guarded(target_capture, case) for case in questions["targets"]]
    import sglang

    answers["release"] = [sglang.__version__, str(Path(sglang.__file__).parent)]
    answer.write_text(json.dumps(answers), encoding="utf-8")


def guarded(ask: Callable[[Any], dict[str, Any]], case: Any) -> dict[str, Any]:
    """What SGLang raised is an answer too."""
    try:
        return ask(case)
    except (Exception, SystemExit) as error:
        if os.environ.get("SERVED_TRACEBACK"):
            import traceback

            traceback.print_exc()
        return {"raised": type(error).__name__, "text": str(error)[:1000]}


def allow_second_registration() -> None:
    """Older releases register configs that newer Transformers have of their own."""
    from transformers.models.auto import configuration_auto as auto

    plain = auto._LazyConfigMapping.register

    def register(self: Any, key: Any, value: Any, exist_ok: bool = False) -> Any:
        return plain(self, key, value, exist_ok=True)

    auto._LazyConfigMapping.register = register


# -- arguments -----------------------------------------------------------------------------------


def server_args(**given: Any) -> Any:
    """This release's ``ServerArgs`` for the CPU; resolved, where that is a step of its own."""
    from sglang.srt.server_args import ServerArgs

    wanted: dict[str, Any] = {
        "device": "cpu",
        "attention_backend": "triton" if "GptOss" in given["model_path"] else "torch_native",
        "disable_radix_cache": True,
        "skip_tokenizer_init": True,
        "disable_cuda_graph": True,
        "cuda_graph_backend_decode": "disabled",
        "cuda_graph_backend_prefill": "disabled",
        "mem_fraction_static": 0.5,
        **given,
    }
    known = getattr(ServerArgs, "__struct_fields__", None) or ServerArgs.__dataclass_fields__
    args = ServerArgs(**{key: value for key, value in wanted.items() if key in known})
    if hasattr(args, "resolve_once"):
        args.resolve_once()
    return args


def resolved(args: Any, name: str) -> Any:
    """The value in force: from 0.5.17 it may stand beside the dataclass."""
    try:
        from sglang.srt.arg_groups.overrides import resolved_view
    except ImportError:
        return getattr(args, name)
    return getattr(resolved_view(args), name)


def arguments_in_force(case: dict[str, Any]) -> dict[str, Any]:
    """Steps, topk, draft tokens and algorithm after this release has dealt with them."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    args = server_args(**case)
    names = ("num_steps", "eagle_topk", "num_draft_tokens", "algorithm")
    found = {name: resolved(args, f"speculative_{name}") for name in names}
    algorithm = SpeculativeAlgorithm.from_string(found["algorithm"])
    return {**found, "asks_for_aux": algorithm.is_eagle3()}


# -- a process that can build models -------------------------------------------------------------


def publish(args: Any) -> None:
    """Make these the arguments that modules look up."""
    try:
        from sglang.srt.runtime_context import SpawnRanks, publish
    except ImportError:
        from sglang.srt.server_args import set_global_server_args_for_scheduler

        set_global_server_args_for_scheduler(args)
        return
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))


def start_process_group(given: dict[str, Any], work: Path) -> None:
    """One rank on gloo."""
    import torch
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers import dp_attention

    args = server_args(**given)
    publish(args)
    parallel_state.init_distributed_environment(
        world_size=1,
        rank=0,
        local_rank=0,
        backend="gloo",
        distributed_init_method=f"file://{work / GROUP_FILE}",
    )
    parallel_state.initialize_model_parallel()
    parameters = inspect.signature(dp_attention.initialize_dp_attention).parameters
    more = (ModelConfig.from_server_args(args),) if len(parameters) > 1 else ()
    dp_attention.initialize_dp_attention(args, *more)
    torch.set_default_dtype(torch.float32)


def draft_config(folder: str) -> Any:
    """The config as the draft worker gets it."""
    from sglang.srt.configs.model_config import ModelConfig

    args = server_args(model_path=folder)
    return ModelConfig.from_server_args(args, model_path=folder, is_draft_model=True)


def model_class(config: Any) -> Any:
    """The class that the loader would build."""
    from sglang.srt.model_loader.utils import get_model_architecture

    return get_model_architecture(config)[0]


# -- drafts --------------------------------------------------------------------------------------


def draft_weights(case: dict[str, Any]) -> dict[str, Any]:
    """Build the real draft class, load the real checkpoint, look at what was filled.

    A parameter that was not filled still holds the NaN it was given before. A tensor was taken if
    a mark put into it alone turns up in some parameter, or if it changes the vocabulary map.
    """
    import torch
    from safetensors.torch import load_file

    config = draft_config(case["draft"])
    cls = model_class(config)
    model = cls(config.hf_config)
    parameters = dict(model.named_parameters())
    weights = load_file(Path(case["draft"]) / "model.safetensors")

    def load(marked: str | None) -> None:
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.fill_(NOT_A_NUMBER)
            model.hot_token_id = None
            model.load_weights(
                (name, torch.full_like(tensor, MARK) if name == marked else tensor.clone())
                for name, tensor in weights.items()
            )

    load(None)
    missing = [name for name, p in parameters.items() if bool(torch.isnan(p).any())]
    unread = []
    for name, tensor in weights.items():
        if tensor.dtype.is_floating_point:
            load(name)
            if not any(bool((p == MARK).any()) for p in parameters.values()):
                unread.append(name)
        elif "d2t" in name and model.hot_token_id is None:
            unread.append(name)
    return {"class": cls.__name__, "unread": sorted(unread), "missing": sorted(missing)}


def overrides_in_force(case: dict[str, Any]) -> dict[str, Any]:
    """Layers and rotary theta of target and draft, built under ``--json-model-override-args``."""
    from sglang.srt.configs.model_config import ModelConfig

    args = server_args(model_path=case["target"], json_model_override_args=case["overrides"])
    found = {}
    for side in ("target", "draft"):
        config = ModelConfig.from_server_args(
            args, model_path=case[side], is_draft_model=side == "draft"
        )
        layers = model_class(config)(config.hf_config).model.layers
        found[side] = {"layers": len(layers), "theta": float(layers[0].self_attn.rope_theta)}
    return found


# -- targets -------------------------------------------------------------------------------------


def target_of(case: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    """The real target class with random weights and the arguments it is served with.

    Returns:
        model, arguments, whether this release asks it for aux hidden states, and the list it passes
        on.
    """
    import torch
    from sglang.srt.configs.model_config import ModelConfig

    args = server_args(
        model_path=case["target"],
        speculative_draft_model_path=case["draft"],
        speculative_algorithm="EAGLE3",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=4,
    )
    config = ModelConfig.from_server_args(args)
    used, ids = ids_that_sglang_passes(args, config)
    torch.manual_seed(0)
    model = model_class(config)(config.hf_config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model, args, used, ids


def target_capture(case: dict[str, Any]) -> dict[str, Any]:
    """Build the real target class, hand it the list as the release does, run one real forward.

    Attention and expert layers are stand-ins that hand on what they got; embedding, residual
    stream, norms and everything that captures are SGLang's. Each captured state is then told apart
    by its values: it is boundary h if it equals the stream that enters layer h.
    """
    model, _, used, ids = target_of(case)
    answer: dict[str, Any] = {"class": type(model).__name__, "uses_aux": used, "ids": ids}
    if not used:
        return answer
    if not hasattr(model, "set_eagle3_layers_to_capture"):
        return {**answer, "no_setter": True}
    from real_forward import seen_by_forward

    model.set_eagle3_layers_to_capture(ids)
    answer["layers_to_capture"] = layers_to_capture(model)
    return {**answer, "forward": guarded(lambda _: seen_by_forward(model), None)}


def ids_that_sglang_passes(args: Any, model_config: Any) -> tuple[bool, Any]:
    """``use_aux_hidden_state`` and the list, by this release's own code."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    algorithm = SpeculativeAlgorithm.from_string("EAGLE3")
    try:
        from sglang.srt.model_executor.model_runner_components import spec_aux_hidden_state as aux
    except ImportError:
        return ids_of_old_runner(args, algorithm)
    publish(args)
    made = aux.resolve_spec_aux_hidden_state_config(
        server_args=args,
        model_config=model_config,
        spec_algorithm=algorithm,
        is_draft_worker=False,
    )
    return bool(made.eagle_use_aux_hidden_state), made.eagle_aux_hidden_state_layer_ids


def ids_of_old_runner(args: Any, algorithm: Any) -> tuple[bool, Any]:
    """Before 0.5.16 the same code stands in the middle of ``ModelRunner.__init__``: cut out."""
    from sglang.srt.model_executor import model_runner as module

    source = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    needed = ("eagle_aux_hidden_state_layer_ids", "draft_model_config = ")
    found = next(  # the outermost comes first
        node
        for node in ast.walk(source)
        if isinstance(node, ast.If) and all(text in ast.unparse(node) for text in needed)
    )
    runner = SimpleNamespace(
        spec_algorithm=algorithm,
        is_draft_worker=False,
        _build_model_config=module.ModelConfig.from_server_args,
    )
    code = ast.fix_missing_locations(ast.Module([found], []))
    exec(
        compile(code, module.__file__, "exec"), vars(module), {"self": runner, "server_args": args}
    )
    return bool(runner.eagle_use_aux_hidden_state), runner.eagle_aux_hidden_state_layer_ids


def layers_to_capture(model: Any) -> list[int] | None:
    """The list the setter left, wherever this class keeps it."""
    for path in ("model", "language_model.model", "language_model", "model.language_model", ""):
        holder = model
        for part in filter(None, path.split(".")):
            holder = getattr(holder, part, None)
        found = getattr(holder, "layers_to_capture", None)
        if isinstance(found, (list, set, tuple)):
            return list(found)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
