"""Runs inside one SGLang release: real target classes with the probe around them; never judges.

Started as a script with the file of questions and the file for the answers. For every list of ids
it says which of Transformers' hidden states each slot equals that arrived at the logits processor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "served"))

import real_forward
import real_sglang
import stand_ins

TOKENS = (5, 9, 33, 7, 100, 64, 2, 17)
CLOSE = 1e-5
"""Largest difference of a state that counts as equal, as a part of its own largest value."""


def main(given: Path, answer: Path) -> None:
    """Stock SGLang first, then the same lists with the probe attached."""
    real_sglang.allow_second_registration()
    questions = json.loads(given.read_text(encoding="utf-8"))
    models = {name: Path(path) for name, path in questions["models"].items()}
    real_sglang.start_process_group({"model_path": str(models["LlamaForCausalLM"])}, given.parent)
    stand_ins.norms_in_place()
    stand_ins.shared_expert_gate()
    stand_ins.biased_experts()
    arrived = watch_logits_processor()
    families = {
        name: real_sglang.guarded(lambda path: {"made": Family(path, arrived)}, path)
        for name, path in models.items()
    }
    answers: dict[str, Any] = {"stock": {}, "probed": {}}
    for round_name, lists in (("stock", questions["stock"]), ("probed", questions["probed"])):
        session = attach(given.parent / "probe") if round_name == "probed" else None
        for name, family in families.items():
            made = family.get("made")
            answers[round_name][name] = (
                family
                if made is None
                else [
                    real_sglang.guarded(functools.partial(made.captures, session=session), case)
                    for case in lists[name]
                ]
            )
    import sglang

    answers["release"] = sglang.__version__
    answer.write_text(json.dumps(answers), encoding="utf-8")


def attach(folder: Path) -> Any:
    """The probe as a scheduler gets it, on modules that are imported already."""
    from sglang_eagle3_probe.attach import attach_scheduler
    from sglang_eagle3_probe.settings import Settings

    return attach_scheduler(dataclasses.replace(Settings.from_environment(), dir=folder))


def watch_logits_processor() -> dict[str, Any]:
    """Ends every forward at the logits processor and keeps what it was handed."""
    from sglang.srt.layers.logits_processor import LogitsProcessor

    arrived: dict[str, Any] = {}

    @functools.wraps(LogitsProcessor.forward)
    def forward(
        self: Any, input_ids: Any, hidden_states: Any, lm_head: Any, logits_metadata: Any,
        aux_hidden_states: Any = None, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        arrived.update(aux=aux_hidden_states, hidden=hidden_states)
        return SimpleNamespace()

    LogitsProcessor.forward = forward
    return arrived


class Family:
    """One target: SGLang's class with the weights loaded, and Transformers' states for the same."""

    def __init__(self, folder: Path, arrived: dict[str, Any]) -> None:
        import torch
        from safetensors.torch import load_file
        from sglang.srt.configs.model_config import ModelConfig

        self.arrived = arrived
        self.states, self.final = states_of_transformers(folder)
        args = real_sglang.server_args(model_path=str(folder), moe_runner_backend="triton")
        real_sglang.publish(args)
        config = ModelConfig.from_server_args(args)
        rope_as_older_releases_read_it(config.hf_config)
        self.model = real_sglang.model_class(config)(config.hf_config)
        parameters = dict(self.model.named_parameters())
        weights = load_file(folder / "model.safetensors")
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.fill_(real_sglang.NOT_A_NUMBER)
            # Older loaders cut these wrongly on a CPU.
            for name in [name for name in weights if name.endswith("experts.down_proj_bias")]:
                parameters[name.replace("down_proj", "w2_weight")].copy_(weights.pop(name))
            self.model.load_weights(iter(weights.items()))
        for module in self.model.modules():
            method = getattr(module, "quant_method", None)
            if hasattr(method, "process_weights_after_loading"):
                method.process_weights_after_loading(module)

    def captures(self, case: dict[str, Any], session: Any) -> dict[str, Any]:
        """Set the list, run one forward, tell the captured states apart by their values."""
        import torch

        if session is None:
            for layer in self.model.model.layers:  # flags of the case before
                vars(layer).pop("_is_layer_to_capture", None)
        else:
            chosen = {"layer_ids": None, "layer_ids_unit": "auto", **case.get("settings", {})}
            session.settings = dataclasses.replace(session.settings, **chosen)
        self.model.set_eagle3_layers_to_capture(case["ids"])
        listed = list(self.model.model.layers_to_capture)
        self.arrived.clear()
        with torch.no_grad(), forward_context():
            tokens = torch.tensor(TOKENS)
            batch = real_forward.prefill(tokens, attn_backend=stand_ins.Attention())
            self.model.forward(tokens, batch.positions, batch)
        aux = self.arrived["aux"]
        return {
            "listed": listed,
            "final_error": error(self.arrived["hidden"], self.final),
            "boundaries": None if aux is None else [self.which(state) for state in aux],
        }

    def which(self, state: Any) -> int | None:
        """The boundary whose hidden state of Transformers this is."""
        found = [h for h, known in enumerate(self.states) if error(state, known) < CLOSE]
        return found[0] if len(found) == 1 else None


def rope_as_older_releases_read_it(config: Any) -> None:
    """Also under the two names that Transformers 5 has put together (read so up to 0.5.9)."""
    rope = config.rope_parameters
    config.rope_theta = rope["rope_theta"]
    if rope["rope_type"] != "default":
        config.rope_scaling = dict(rope)


def error(state: Any, known: Any) -> float:
    """Largest difference, as a part of the known state's largest value."""
    if state.shape != known.shape:
        return float("inf")
    return float((state - known).abs().max() / known.abs().max())


def states_of_transformers(folder: Path) -> tuple[list[Any], Any]:
    """hidden_states[0..N-1], the input of the final norm as boundary N, and the normed output."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    last: list[Any] = []
    network.model.norm.register_forward_pre_hook(lambda _, given: last.append(given[0].clone()))
    with torch.no_grad():
        states = network(input_ids=torch.tensor([TOKENS]), output_hidden_states=True).hidden_states
    return [state[0] for state in (*states[:-1], last[0])], states[-1][0]


def forward_context() -> AbstractContextManager[Any]:
    """Where releases from 0.5.13 on look the attention up; before, the batch carries it."""
    try:
        from sglang.srt.model_executor import forward_context as module
    except ImportError:
        return contextlib.nullcontext()
    return module.forward_context(module.ForwardContext(attn_backend=stand_ins.Attention()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
