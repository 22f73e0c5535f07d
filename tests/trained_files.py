"""Files as trainers' data steps write them, and one-piece captures, from a fixture target's states.

scene = Scene(materialise("llama", tmp_path / "target"), held_out_sample()[:128])
scene.capture(tmp_path / "captures")
scene.specforge(tmp_path / "states")
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from offline_captures import CaptureTarget
from safetensors.torch import save_file

from sglang_eagle3_probe.capture.layout import PieceInfo, piece_name
from sglang_eagle3_probe.capture.writing import write_piece

SLOTS = (2, 4, 6)


class Scene:
    """A target's forward over one text.

    Attributes:
        boundaries: [T, N+1, H]; final_norm: [T, H].
        mlp, attention: [N, T, H], each layer's own additions to the stream.
        normed: [N, T, H], each layer's input after its norm.
    """

    def __init__(self, folder: Path, ids: Sequence[int], *, quantised_bits: int = 0) -> None:
        target = CaptureTarget(folder)
        if quantised_bits:
            _quantise(target.network, quantised_bits)
        kept: dict[str, list[torch.Tensor]] = {"mlp": [], "attention": [], "normed": []}

        def keep(name: str) -> Any:
            def hook(_module: Any, _given: Any, output: Any) -> None:
                kept[name].append((output if isinstance(output, torch.Tensor) else output[0])[0])

            return hook

        for layer in target.network.model.layers:
            layer.mlp.register_forward_hook(keep("mlp"))
            layer.self_attn.register_forward_hook(keep("attention"))
            layer.input_layernorm.register_forward_hook(keep("normed"))
        rows = target.rows(ids)
        self.folder = folder
        self.ids = list(ids)
        self.boundaries, self.final_norm = rows.boundaries, rows.final_norm
        self.mlp, self.attention, self.normed = (
            torch.stack(kept[name]) for name in ("mlp", "attention", "normed")
        )
        self.layers, self.hidden = target.config.num_hidden_layers, target.config.hidden_size
        self.mlp_weights = [layer.mlp for layer in target.network.model.layers]

    def aux(self, slots: Sequence[int] = SLOTS) -> torch.Tensor:
        """[T, A, H]."""
        return self.boundaries[:, list(slots)].clone()

    def half_of_mlp(self, layer: int) -> torch.Tensor:
        """[T, H]: the first of two ranks' part of a layer's MLP output."""
        mlp = self.mlp_weights[layer]
        stream = self.boundaries[:, layer] + self.attention[layer]
        norm = stream * (stream.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        with torch.inference_mode():
            inner = mlp.act_fn(mlp.gate_proj(norm)) * mlp.up_proj(norm)
            half = inner.shape[-1] // 2
            return inner[:, :half] @ mlp.down_proj.weight[:, :half].T

    def capture(
        self,
        folder: Path,
        aux: torch.Tensor | None = None,
        *,
        slots: Sequence[int] = SLOTS,
        all_boundaries: bool = True,
        start: int = 0,
        prefix: Sequence[int] = (),
        dtype: torch.dtype = torch.float32,
        **more: Any,
    ) -> Path:
        """A prefill piece with the states of the text from ``start`` on, after ``prefix``.

        The prefix has rows of noise, as of a text that only the server saw.
        """
        folder.mkdir(parents=True, exist_ok=True)
        aux = self.aux(slots) if aux is None else aux
        ids = [*prefix, *self.ids[start:]]

        def led(rows: torch.Tensor) -> torch.Tensor:
            before = torch.randn((len(prefix), *rows.shape[1:]))
            return torch.cat([before, rows[start:]]).to(dtype)

        tensors = {
            "prompt_ids": torch.tensor(ids),
            "token_ids": torch.tensor(ids),
            "positions": torch.arange(len(ids)),
            "aux": led(aux.flatten(1)),
        }
        if all_boundaries:
            tensors["boundary_states"] = led(self.boundaries)
            tensors["final_norm"] = led(self.final_norm)
        described: dict[str, Any] = {
            "all_boundaries": list(range(self.layers + 1)) if all_boundaries else [],
            "prompt_tokens": len(ids),
            "num_layers": self.layers,
            "target_class": "LlamaForCausalLM",
            "sglang": "0.5.23",
        }
        info = PieceInfo(
            kind="prefill",
            request="r",
            piece=0,
            last=True,
            boundaries=list(slots),
            hidden_width=self.hidden,
            dtype=str(dtype).removeprefix("torch."),
            **{**described, **more},
        )
        write_piece(folder / piece_name(0, 0, "host-1-tp0"), info, tensors)
        return folder

    # -- producers; each returns the path to give to the command --

    def specforge(self, folder: Path, aux: torch.Tensor | None = None, *, packed: bool = False):
        aux = self.aux() if aux is None else aux
        path = folder / "rows_0-2000" / "data_0.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "input_ids": torch.tensor(self.ids),
            "loss_mask": torch.ones(len(self.ids), dtype=torch.long),
            "hidden_state": self.final_norm[None].clone(),
            "aux_hidden_state": aux.flatten(1)[None].clone(),
        }
        torch.save(record, path)
        if packed:
            with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb", compresslevel=1) as out:
                shutil.copyfileobj(plain, out)
            path.unlink()
        return folder

    def angelslim(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        path = folder / "rows_0-1000" / "data_0.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "input_ids": torch.tensor([self.ids]),
            "loss_mask": torch.ones(1, len(self.ids), dtype=torch.long),
            "hidden_states": aux.flatten(1)[None],
            "target_hiddens": self.final_norm[None],
        }
        torch.save(record, path)
        return folder

    def modelopt(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "input_ids": torch.tensor(self.ids),
            "hidden_states": self.final_norm,
            "aux_hidden_states": aux.flatten(1),
            "conversation_id": "c-0",
            "loss_mask": torch.ones(len(self.ids)),
        }
        torch.save(record, folder / "c-0.pt")
        return folder

    def tensorrt_llm(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        other = {
            "id": 0,
            "input_ids": torch.arange(40),
            "hidden_state": torch.randn(40, self.hidden),
            "aux_hidden_states": torch.randn(40, 3 * self.hidden),
        }
        mine = {
            "id": 1,
            "input_ids": torch.tensor(self.ids),
            "hidden_state": self.final_norm,
            "aux_hidden_states": aux.flatten(1),
        }
        torch.save([other, mine], folder / "states_20.pt")
        return folder

    def nemo(self, folder: Path, aux: torch.Tensor | None = None, *, version: int = 2):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        length, width = len(self.ids), len(self.ids) + 8
        ids, mask = torch.zeros(2, width, dtype=torch.long), torch.zeros(2, width, dtype=torch.long)
        ids[1, : length - 1] = torch.tensor(self.ids[1:])
        mask[1, :length] = 1
        mask[0, :20] = 1
        states = torch.zeros(2, width, aux.shape[1] * self.hidden)
        states[1, :length] = aux.flatten(1)
        manifest = {
            "format_version": version,
            "aux_layer_ids": [h - 1 for h in SLOTS],
            "selected_token_ids": None,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        save_file(
            {
                "input_ids": ids,
                "attention_mask": mask,
                "loss_mask": mask.clone(),
                "aux_hidden_states": states,
                "position_mask": torch.ones(2, width, 1),
            },
            folder / "shard-000000.safetensors",
        )
        save_file({"embedding": torch.zeros(4, 4)}, folder / "target_embeddings.safetensors")
        return folder

    def speculators(self, folder: Path, aux: torch.Tensor | None = None, name: str = "hs_0"):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        stacked = torch.cat([aux, self.boundaries[:, -1:]], dim=1).contiguous()
        save_file(
            {"hidden_states": stacked, "token_ids": torch.tensor(self.ids)},
            folder / f"{name}.safetensors",
        )
        return folder

    def vllm(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {"hidden_states": aux, "token_ids": torch.tensor(self.ids)},
            folder / "cmpl-7.safetensors",
        )
        return folder

    def speculators_old(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        listed = [*aux.unbind(1), self.boundaries[:, -1]]
        torch.save(
            {
                "input_ids": torch.tensor(self.ids),
                "hidden_states": [state.clone() for state in listed],
                "loss_mask": torch.ones(len(self.ids)),
            },
            folder / "data_0.pt",
        )
        config = {"version": "2.0", "hidden_states": {"layer_ids": [1, 3, 5, self.layers - 1]}}
        (folder / "data_config.json").write_text(json.dumps(config))
        return folder

    def research(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "input_ids": torch.tensor(self.ids),
            "loss_mask": torch.ones(len(self.ids)),
            "hidden_state": aux.flatten(1),
            "target": self.final_norm,
        }
        torch.save(record, folder / "0.pt")
        return folder

    def baldeagle(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "input_ids": torch.tensor(self.ids),
            "loss_mask": torch.ones(len(self.ids)),
            "hidden_state": aux.transpose(0, 1).contiguous(),
        }
        torch.save(record, folder / "data_0.ckpt")
        return folder

    def eagle(self, folder: Path, aux: torch.Tensor | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "input_ids": torch.tensor(self.ids),
            "loss_mask": torch.ones(len(self.ids)),
            "hidden_state": self.final_norm[None],
        }
        torch.save(record, folder / "data_0.ckpt")
        return folder

    def plain_pt(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"tokens": self.ids, "states": aux}, folder / "mine.pt")
        return folder

    def plain_safetensors(self, folder: Path, aux: torch.Tensor | None = None):
        aux = self.aux() if aux is None else aux
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {"input_ids": torch.tensor(self.ids).int(), "aux": aux.flatten(1)},
            folder / "mine.safetensors",
        )
        return folder


def _quantise(network: Any, bits: int) -> None:
    """Every linear layer's rows rounded to so many bits, as weight-only quantisers do."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.Linear):
                step = module.weight.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
                module.weight.copy_((module.weight / step).round() * step)
