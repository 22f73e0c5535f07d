"""What draft_module says of names is what each release's own ``load_weights`` does with them.

Runs on the releases whose sources lie in the contract tests' cache, and is skipped without any.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.static_rules.situations import (
    HIDDEN,
    MLA_DRAFT,
    MLA_PARTS,
    PROJECTIONS,
    layer,
    situation,
    tensor,
    tensors,
)

from sglang_eagle3_probe.rules.static import draft_module
from sglang_eagle3_probe.rules.static.base import since

torch = pytest.importorskip("torch")

CACHE = Path(
    os.environ.get("EAGLE3_PROBE_WHEEL_CACHE")
    or Path.home() / ".cache" / "sglang-eagle3-probe" / "wheels"
)
FILES = {False: "llama_eagle3.py", True: "kimi_k25_eagle3.py"}
SOURCES = [
    (folder.name, mla, folder / "sglang" / "srt" / "models" / file)
    for folder in (sorted(CACHE.iterdir()) if CACHE.is_dir() else ())
    for mla, file in FILES.items()
    if (folder / "sglang" / "srt" / "models" / file).is_file()
]
STACKS = {
    "q_proj": ("qkv_proj", "q"),
    "k_proj": ("qkv_proj", "k"),
    "v_proj": ("qkv_proj", "v"),
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
}
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"fc_norm": True},
    {"norm_before_fc": True, "bias": True},
    {"attention_bias": True, "use_aux_norm": True},
)
EXTRAS = {
    name: tensor(HIDDEN)
    for name in (
        "fc_norm.0.weight", "aux_norm_low.weight", "aux_norm_high.weight", "input_norm.weight",
        "fc.bias", "midlayer.self_attn.q_proj.bias", "midlayer.self_attn.o_proj.bias",
        "layers.1.mlp.up_proj.weight", "embed_tokens.weight", "foo.weight",
        "midlayer.self_attn.qkv_proj.weight", "midlayer.self_attn.q_norm.weight",
    )
}  # fmt: skip
Slot = tuple[str, Any]


def load_weights(path: Path) -> Callable[..., None]:
    """The function itself, cut out of the model file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == "load_weights":
            node.decorator_list, node.returns = [], None
            for argument in node.args.args:
                argument.annotation = None
            scope: dict[str, Any] = {
                "torch": torch,
                "re": re,
                "default_weight_loader": None,
                "logger": SimpleNamespace(warning=lambda *_: None),
            }
            code = ast.fix_missing_locations(ast.Module([node], []))
            exec(compile(code, str(path), "exec"), scope)  # a release's own source, from its wheel
            found: Callable[..., None] = scope["load_weights"]
            return found
    raise AssertionError(f"{path} has no load_weights")


def slot(name: str, *, mla: bool, midlayer: bool) -> Slot:
    """Module parameter and shard of a canonical name."""
    shard: Any = None
    for part, (stacked, which) in STACKS.items():
        if f".{part}." in name and not (mla and stacked == "qkv_proj"):
            name, shard = name.replace(f".{part}.", f".{stacked}."), which
            break
    if mla:
        name = re.sub(r"\.(q_a_proj|kv_a_proj_with_mqa)\.", ".fused_qkv_a_proj_with_mqa.", name)
    if midlayer:
        name = name.replace("layers.0.", "midlayer.")
    return (name if name.startswith("lm_head.") else f"model.{name}"), shard


def checkpoints(parts: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    base = {name: info for name, info in tensors().items() if not name.startswith("midlayer.")}
    plain = {prefix: {**base, **layer(prefix, parts)} for prefix in ("midlayer.", "layers.0.")}
    prefixed = {
        f"model.{prefix}": {
            (name if name.startswith("lm_head.") else f"model.{name}"): info
            for name, info in weights.items()
        }
        for prefix, weights in plain.items()
    }
    return {**plain, **prefixed, "extras": {**plain["midlayer."], **EXTRAS}}


@pytest.mark.skipif(not SOURCES, reason="no sources of SGLang releases in the cache")
@pytest.mark.parametrize(
    ("release", "mla", "path"),
    SOURCES,
    ids=[f"{r}-{'mla' if m else 'llama'}" for r, m, _ in SOURCES],
)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "+".join(c) or "plain")
def test_names(release: str, mla: bool, path: Path, config: dict[str, Any]) -> None:
    load = load_weights(path)
    for style, weights in checkpoints(MLA_PARTS if mla else PROJECTIONS).items():
        gone: dict[str, Any] = dict.fromkeys(tensors(), ...)
        case = situation(
            draft={**(MLA_DRAFT if mla else {}), **config},
            weights={**gone, **weights},
            release=release,
        )
        known = draft_module.parameters(case)
        assert known is not None
        midlayer = mla or not since(case, "0.5.12")
        filled: set[Slot] = set()

        def parameter(name: str, filled: set[Slot] = filled) -> SimpleNamespace:
            def loader(_: object, __: object, shard: Any = None) -> None:
                whole = shard is None and name.endswith("qkv_proj.weight")
                filled.update((name, one) for one in ("qkv" if whole else (shard,)))

            return SimpleNamespace(weight_loader=loader)

        names = {slot(one, mla=mla, midlayer=midlayer)[0] for one in known.all}
        model = SimpleNamespace(
            named_parameters=lambda names=names, make=parameter: [(n, make(n)) for n in names],
            post_load_weights=lambda: None,
            hot_token_id=None,
        )
        load(
            model,
            [
                (name, torch.zeros(4, 1, dtype=torch.long)[:, 0:1])
                if "d2t" not in name
                else (name, torch.zeros(4, dtype=torch.long))
                for name in weights
            ],
        )
        taken, _ = draft_module.split(case)
        assert {slot(one, mla=mla, midlayer=midlayer) for one in taken} == filled, style
