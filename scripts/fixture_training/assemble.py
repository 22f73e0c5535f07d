"""Turns trained weights into the files under ``tests/fixtures``."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from .corpus import END_OF_TEXT_ID, Corpus
from .draft_model import Draft
from .export import check_against_hf, write_draft, write_target
from .pipeline import DraftData
from .shapes import DRAFTS, TARGETS
from .target_model import ROPE_THETA, Target
from .train_draft import ACCURACY_DEFINITION, step_accuracy
from .train_target import held_out_loss
from .trigram import KneserNey

PROMPTS = 24
PROMPT_TOKENS = 64
SAMPLE_TOKENS = 4097
LOSS_DEFINITION = (
    "mean negative log probability per token in nats over the held-out token stream; model: "
    "windows of 256 tokens with stride 128, each token scored once with at least 128 tokens of "
    "context (fewer at the start of the stream); trigram: interpolated modified Kneser-Ney "
    "counted on the whole training split"
)


def write_tokenizer(directory: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)


def write_prompts(path: Path, tokenizer: PreTrainedTokenizerFast, held_out: np.ndarray) -> None:
    """Prompts that start at a line's start, spread over the held-out stream, and a sample."""
    prompts: list[dict[str, Any]] = []
    spread = len(held_out) // PROMPTS
    for index in range(PROMPTS):
        piece = held_out[index * spread : (index + 1) * spread].tolist()
        if END_OF_TEXT_ID in piece[:400]:  # stay inside one file
            piece = piece[piece.index(END_OF_TEXT_ID) + 1 :]
        text = tokenizer.decode(piece[:400])
        text = text[text.index("\n") + 1 :]
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:PROMPT_TOKENS]
        text = tokenizer.decode(ids)
        again = tokenizer(text, add_special_tokens=False)["input_ids"]
        prompts.append({"text": text, "token_ids": again})
    middle = len(held_out) // 2
    lines = ",\n".join(f"    {json.dumps(prompt)}" for prompt in prompts)
    sample = json.dumps(held_out[middle : middle + SAMPLE_TOKENS].tolist())
    source = "held-out files of the Python standard library (PSF License Version 2)"
    path.write_text(
        f'{{\n  "source": "{source}",\n  "prompts": [\n{lines}\n  ],\n'
        f'  "held_out_sample": {sample}\n}}\n',
        encoding="utf-8",
    )


def write_targets(
    root: Path,
    targets: dict[str, Target],
    corpus: Corpus,
    train: np.ndarray,
    held_out: np.ndarray,
) -> dict[str, Any]:
    """Write the targets; return the report of their losses."""
    orders = {1: "unigram", 2: "bigram", 3: "trigram"}
    baselines = {
        name: round(KneserNey(train, targets["deepseek"].shape.vocab_size, n).loss(held_out), 4)
        for n, name in orders.items()
    }
    middle = len(held_out) // 2
    report: dict[str, Any] = {
        "definition": LOSS_DEFINITION,
        "text": {
            "python": platform.python_version(),
            "files_train": len(corpus.train),
            "files_held_out": len(corpus.held_out),
            "bytes": corpus.size_bytes,
            "sha256": corpus.digest,
            "tokens_train": len(train),
            "tokens_held_out": len(held_out),
        },
        "baseline_loss": baselines,
        "targets": {},
    }
    for name, target in targets.items():
        target = target.cpu()
        write_target(root / "models" / name, target)
        ids = torch.from_numpy(held_out[:512]).view(2, 256)
        loss = held_out_loss(target, held_out)
        report["targets"][name] = {
            "parameters": sum(p.numel() for p in target.parameters()),
            "held_out_loss": round(loss, 4),
            "lead_over_trigram": round(baselines["trigram"] - loss, 4),
            "sample_loss": round(
                held_out_loss(target, held_out[middle : middle + SAMPLE_TOKENS]), 4
            ),
            "relative_difference_to_hugging_face": check_against_hf(
                root / "models" / name, target, ids
            ),
            "recipe": asdict(TARGETS[name][1]),
        }
    return report


def write_drafts(
    root: Path, targets: dict[str, Target], drafts: dict[str, Draft], data: dict[str, DraftData]
) -> dict[str, Any]:
    """Write the drafts with ``trainer_accuracy.json`` beside each; return the accuracies."""
    accuracies: dict[str, Any] = {}
    for name, draft in drafts.items():
        plan = DRAFTS[name]
        target, its_data = targets[plan.target].cpu(), data[plan.target]
        accuracy = {
            "definition": ACCURACY_DEFINITION,
            "trained_on_boundaries": list(plan.shape.boundaries),
            "trained_on_output_ids": [h - 1 for h in plan.shape.boundaries],
            "trained_rope_theta": ROPE_THETA,
            "held_out_generations": step_accuracy(
                target, draft.cpu(), its_data.held_out_generations
            ),
            "held_out_corpus_text": step_accuracy(target, draft, its_data.held_out_corpus),
            "recipe": asdict(plan.recipe),
        }
        write_draft(root / "models" / name, draft, plan.aux_layer_ids, accuracy)
        accuracies[name] = accuracy
    return accuracies
