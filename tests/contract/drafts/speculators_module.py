"""What the draft class of speculators computes; a worker for the environment that has it.

Each folder named on the command line has a draft as speculators saves it and
``inputs.safetensors``; beside them it writes ``speculators.safetensors`` with ``logits.k`` and
``hidden.k`` of the steps. No line here is shared with the package under test.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

STEPS = 3


def compute(folder: Path) -> None:
    """Steps of one draft."""
    import torch
    from safetensors.torch import load_file, save_file
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    config = Eagle3SpeculatorConfig(**json.loads((folder / "config.json").read_text()))
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config).to(torch.float32).eval()
    weights = load_file(folder / "model.safetensors")
    result = model.load_state_dict(weights, strict=False)
    missing = [name for name in result.missing_keys if not name.startswith("verifier_")]
    if missing or result.unexpected_keys:
        raise SystemExit(f"missing {missing}, unexpected {result.unexpected_keys}")
    given = load_file(folder / "inputs.safetensors")
    ids = given["next_ids"]
    rows = len(given["positions"])
    kept: dict[str, Any] = {}
    entered: list[Any] = []

    def at_norm(_: Any, inputs: Any, output: Any) -> None:
        entered.append((output if config.norm_output else inputs[0]).detach().clone())

    def at_head(_: Any, __: Any, output: Any) -> None:
        step = len(entered) - 1
        kept[f"logits.{step}"] = output[0, :rows].detach().clone()
        kept[f"hidden.{step}"] = entered[step][0, :rows].contiguous()

    model.norm.register_forward_hook(at_norm)
    model.lm_head.register_forward_hook(at_head)
    more = len(ids) - rows
    aux = torch.cat([given["aux"], torch.zeros(more, given["aux"].shape[1])])
    with torch.no_grad():
        model(
            hidden_states=aux[None],
            input_ids=ids[None],
            document_ids=torch.zeros(1, len(ids), dtype=torch.long),
            position_ids=given["positions"][0] + torch.arange(len(ids))[None],
            ttt_steps=STEPS,
        )
    save_file({name: tensor.contiguous() for name, tensor in kept.items()},
              folder / "speculators.safetensors")  # fmt: skip


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        compute(Path(name))
