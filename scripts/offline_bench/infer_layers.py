"""How long ``infer-layers`` takes: 61 boundaries x 500 tokens of hidden 1024 must stay under 60 s.

    python scripts/offline_bench/infer_layers.py [--boundaries 61] [--tokens 500] [--hidden 1024]

No such pair of models is at hand, so one is made up: boundaries that drift from layer to layer, a
draft with random weights, and a target whose last state is what that draft computes from three of
the boundaries. The draft is then right with these and with no others. What runs is the command
itself, in a process of its own, from files; exit code 1 when it is too slow or wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sglang_eagle3_probe.capture.layout import PieceInfo, piece_name  # noqa: E402
from sglang_eagle3_probe.capture.writing import write_piece  # noqa: E402
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft  # noqa: E402

LIMIT_S = 60.0
VOCABULARY = 32000
REQUESTS = 4


def config(hidden: int, vocabulary: int, **more: object) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_attention_heads": max(1, hidden // 64),
        "num_key_value_heads": max(1, hidden // 256),
        "head_dim": 64,
        "num_hidden_layers": 1,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": vocabulary,
        **more,
    }


def store(folder: Path, settings: dict[str, object], tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    save_file({k: w.to(torch.bfloat16) for k, w in tensors.items()}, folder / "model.safetensors")


def make(
    place: Path,
    truth: tuple[int, ...],
    *,
    boundaries: int,
    tokens: int,
    hidden: int,
    vocabulary: int = VOCABULARY,
    **settings: object,
) -> None:
    """Writes target, draft and capture below ``place``.

    Args:
        truth: the boundaries that the draft is right with, in the order of its ``fc``.
        settings: more of the draft's config, such as ``fc_norm=True``.
    """
    torch.manual_seed(0)

    def weight(out: int, given: int) -> torch.Tensor:
        return torch.randn(out, given) * given**-0.5

    slots = len(truth)
    layer, heads, keys = "midlayer.", max(hidden, 64), max(1, hidden // 256) * 64
    head, fc = weight(vocabulary, hidden) * 6, weight(hidden, slots * hidden)
    norms = {f"fc_norm.{slot}.weight": 0.5 + torch.rand(hidden) for slot in range(slots)}
    norms["input_norm.weight"] = 0.5 + torch.rand(slots * hidden)
    norms = {
        k: w for k, w in norms.items() if {"f": "fc_norm", "i": "norm_before_fc"}[k[0]] in settings
    }
    store(
        place / "draft",
        config(hidden, vocabulary, draft_vocab_size=vocabulary, **settings),
        {
            **norms,
            "fc.weight": fc,
            "lm_head.weight": head,
            "norm.weight": torch.ones(hidden),
            layer + "input_layernorm.weight": torch.ones(hidden),
            layer + "hidden_norm.weight": torch.ones(hidden),
            layer + "post_attention_layernorm.weight": torch.ones(hidden),
            layer + "self_attn.q_proj.weight": weight(heads, 2 * hidden),
            layer + "self_attn.k_proj.weight": weight(keys, 2 * hidden),
            layer + "self_attn.v_proj.weight": weight(keys, 2 * hidden),
            layer + "self_attn.o_proj.weight": weight(hidden, heads),
            layer + "mlp.gate_proj.weight": weight(4 * hidden, hidden),
            layer + "mlp.up_proj.weight": weight(4 * hidden, hidden),
            layer + "mlp.down_proj.weight": weight(hidden, 4 * hidden),
        },
    )
    layers = {"num_hidden_layers": boundaries - 1, "architectures": ["LlamaForCausalLM"]}
    embedding = torch.randn(vocabulary, hidden)
    store(
        place / "target",
        {**config(hidden, vocabulary), **layers},
        {"model.embed_tokens.weight": embedding, "lm_head.weight": head},
    )
    draft = ReferenceDraft.load(place / "draft", target=place / "target")
    length = tokens // REQUESTS
    for number in range(REQUESTS):
        ids = torch.randint(vocabulary, (length + 2,))
        # Each layer keeps most of the stream and adds to it, as real ones do.
        states = [embedding[ids]]
        for _ in range(boundaries - 1):
            states.append(0.95 * states[-1] + 0.3 * torch.randn(length + 2, hidden))
        stack = torch.stack(states, dim=1)
        captured = stack[:-1, list(truth)].flatten(1)
        # A single state as wide as the draft passes by fc in SGLang, but not in training.
        features = (
            draft.features(captured) if slots > 1 else captured @ fc.to(torch.bfloat16).float().T
        )
        output, _ = draft.begin(ids[1:], features, torch.arange(length + 1))
        final = torch.zeros(length + 2, hidden)
        # The draft tells after row t what the target says one position later; it is a bit unsure.
        final[1:] = output.normed + 0.3 * torch.randn(length + 1, hidden)
        rows = slice(0, length + 1)
        info = PieceInfo(
            kind="prefill",
            request=f"r{number}",
            piece=0,
            last=True,
            boundaries=list(truth),
            hidden_width=hidden,
            dtype="bfloat16",
            prompt_tokens=length + 1,
            all_boundaries=list(range(boundaries)),
            num_layers=boundaries - 1,
            vocabulary=vocabulary,
            draft_vocabulary=vocabulary,
            target_class="LlamaForCausalLM",
            sglang="0.5.23",
        )
        tensors = {
            "token_ids": ids[rows],
            "positions": torch.arange(length + 1),
            "aux": stack[rows, list(truth)].flatten(1).to(torch.bfloat16),
            "boundary_states": stack[rows].to(torch.bfloat16),
            "final_norm": final[rows].to(torch.bfloat16),
            "next_id": ids[length + 1 :],
        }
        (place / "captures").mkdir(exist_ok=True)
        write_piece(place / "captures" / piece_name(number, 0, "bench-1-tp0"), info, tensors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--boundaries", type=int, default=61)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=1024)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        truth = (2, given.boundaries // 2, given.boundaries - 4)
        make(
            place,
            truth,
            boundaries=given.boundaries,
            tokens=given.tokens,
            hidden=given.hidden,
        )
        command = [sys.executable, "-m", "sglang_eagle3_probe.cli.main", "infer-layers"]
        command += [str(place / "captures"), "--draft", str(place / "draft")]
        command += ["--target", str(place / "target"), "--json"]
        started = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=dict(os.environ)
        )
        seconds = time.perf_counter() - started
    if done.returncode not in (0, 1):
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        return 1
    found = json.loads(done.stdout)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    right = tuple(found["best"]["boundaries"]) == truth
    print(
        f"{given.boundaries} boundaries x {given.tokens} tokens of hidden {given.hidden}: "
        f"{seconds:.1f} s wall, {usage.ru_utime + usage.ru_stime:.1f} s of CPU, "
        f"{usage.ru_maxrss >> 10} MB; {found['search']['quick']} combinations scored on few rows, "
        f"{found['search']['thorough']} on more, {found['search']['exact']} on all, of "
        f"{found['search']['whole']}"
    )
    print(f"best {found['best']['boundaries']}, made with {list(truth)}: {found['answer']}")
    return int(not right or seconds > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
