"""Runs a release's own DeepSeek-V2 with the probe around it; says what came out, never judges.

Started as a script in a process of its own, with one release first on the search path. Reads
``{"start": {...}, "cases": [{"target", "draft"}]}`` from the file named first and writes its
answers to the file named second. The probe is attached as in a scheduler process; the draft's list
goes through the release's own code from its config to the setter, in the order in which that
release calls it, and one real forward follows.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

from probed_round import verify_round
from real_forward import seen_by_forward
from real_sglang import (
    allow_second_registration,
    guarded,
    start_process_group,
    target_of,
)

SETTER = "set_eagle3_layers_to_capture"


def main(given: Path, answer: Path) -> None:
    """Answer every case of the file."""
    allow_second_registration()
    questions = json.loads(given.read_text(encoding="utf-8"))
    from sglang_eagle3_probe.attach import attach_command_line, attach_scheduler
    from sglang_eagle3_probe.settings import Settings

    attach_command_line()
    folder = os.environ["SGLANG_EAGLE3_PROBE_DIR"]
    flags = guarded(lambda start: command_line(start, f"{folder}/there"), questions["start"])
    session = attach_scheduler(Settings.from_environment())
    start_process_group(questions["start"], given.parent)
    answers = [guarded(lambda case: serve(case, session), case) for case in questions["cases"]]
    import sglang

    told = {
        "release": sglang.__version__,
        "probe": session.release,
        "flags": flags,
        "round": guarded(lambda _: verify_round(session), None),
        "answers": answers,
    }
    answer.write_text(json.dumps(told), encoding="utf-8")


def command_line(start: dict[str, Any], folder: str) -> dict[str, Any]:
    """Parse ``--enable-probe`` with this release's own parser; what it leaves on the record.

    The flags stay in force for this process, as they would for a server.
    """
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    from sglang_eagle3_probe import settings

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    argv = ["--model-path", start["model_path"], "--device", "cpu", "--skip-tokenizer-init"]
    argv += ["--attention-backend", "torch_native", "--disable-cuda-graph"]
    os.environ.pop("SGLANG_EAGLE3_PROBE", None)
    plain = sorted(vars_of(prepare_server_args(argv)))
    off = settings.is_enabled()
    probed = sorted(vars_of(prepare_server_args([*argv, "--enable-probe", "--probe-dir", folder])))
    return {
        "helped": "--enable-probe" in parser.format_help(),
        "off": off,
        "on": settings.is_enabled(),
        "dir": settings.Settings.from_environment().dir == os.path.abspath(folder),
        "foreign": sorted(set(probed) ^ set(plain)),
    }


def vars_of(args: Any) -> list[str]:
    fields = list(getattr(type(args), "__struct_fields__", ()))
    return [*fields, *getattr(args, "__dict__", {})]


def serve(case: dict[str, Any], session: Any) -> dict[str, Any]:
    """Build the target, set the layer ids as this release does, run one forward."""
    model, args, used, ids = target_of(case)
    session.runner_ids, session.layer_ids = None, None
    session.early_patches.clear()
    for_graphs = set_before_graphs(model, used, ids, args)
    getattr(model, SETTER)(ids)
    plan = session.plans[model.logits_processor]
    record = session.layer_ids
    return {
        "ids": ids,
        "for_graphs": for_graphs,
        "planned": list(plan.boundaries),
        "order": plan.order,
        "told": [slot.boundary for slot in record.slots],
        "patches": record.patches_applied,
        "stock": record.stock_boundaries,
        "stock_error": record.stock_error,
        "forward": seen_by_forward(model),
        "compiled": compiled(model) if gets_copy(model) else None,
    }


def gets_copy(model: Any) -> bool:
    return getattr(model.model, "eagle3_probe_boundaries", None) is not None


def compiled(model: Any) -> dict[str, Any]:
    """The same forward in one piece, as this release compiles it for a piecewise prefill graph."""
    import torch
    from sglang.srt.compilation import compile as compilation
    from sglang.srt.compilation.piecewise_context_manager import enable_piecewise_cuda_graph

    pieces: list[Any] = []
    if hasattr(compilation, "set_compiled"):  # 0.5.9
        switch = compilation.set_compiled(True)
    else:
        switch = enable_piecewise_cuda_graph()

    def backend(graph: Any, _: Any) -> Any:
        pieces.append(graph)
        return graph.forward

    disabled = os.environ.pop("TORCHDYNAMO_DISABLE", None)
    torch._dynamo.config.disable = False
    try:
        compilation.install_torch_compiled(model.model, fullgraph=True, backend_factory=backend)
        with switch:
            found = seen_by_forward(model)
    finally:
        torch._dynamo.config.disable = True
        if disabled is not None:
            os.environ["TORCHDYNAMO_DISABLE"] = disabled
    # Hooks that tell later boundaries apart are not traced; the embedding's is outside of it all.
    return {"pieces": len(pieces), "count": found["count"], "first": found["boundaries"][0]}


def set_before_graphs(model: Any, used: bool, ids: Any, args: Any) -> list[list[int]]:
    """What each argument-less call of this release leaves, in its order; none from 0.5.11 on.

    ``ModelRunner`` and ``CudaGraphRunner`` want a device, so their own statements around the
    setter are cut out and run; ``load_model`` is called through whatever stands around it.
    """
    from sglang.srt.model_executor import model_runner as runners

    source = Path(runners.__file__).read_text(encoding="utf-8")
    graphs = Path(runners.__file__).with_name("cuda_graph_runner.py")
    if f"self.model.{SETTER}()" not in source:
        return []
    runner = object.__new__(runners.ModelRunner)
    runner.is_draft_worker = False
    runner.eagle_use_aux_hidden_state, runner.eagle_aux_hidden_state_layer_ids = used, ids
    runner.spec_algorithm = eagle3()
    runner.model = model
    around = runners.ModelRunner.__dict__["load_model"]
    around.__wrapped__ = lambda *_: None
    runner.load_model()
    left = []
    for file, names in (
        (source, {"self": runner}),
        (graphs.read_text(encoding="utf-8"), {"self": Holder(runner), "model_runner": runner}),
    ):
        exec(calls_without_list(file), vars(runners), names)
        inner = model.model
        left.append(
            list(getattr(inner, "eagle3_probe_boundaries", None) or inner.layers_to_capture)
        )
    return left


class Holder:
    """The part of ``CudaGraphRunner`` that its call of the setter looks at."""

    def __init__(self, model_runner: Any) -> None:
        self.model_runner = model_runner


def eagle3() -> Any:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    return SpeculativeAlgorithm.from_string("EAGLE3")


def calls_without_list(source: str) -> Any:
    """The ``if`` statement that calls the setter without a list."""
    [found] = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and ast.unparse(node.body[0]).endswith(f"{SETTER}()")
    ]
    return compile(ast.fix_missing_locations(ast.Module([found], [])), "sglang", "exec")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
