"""The stages of ``scripts/train_fixtures`` in order, with their results kept on disk."""

from __future__ import annotations

import multiprocessing
import os
import platform
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .assemble import write_drafts, write_prompts, write_targets, write_tokenizer
from .corpus import encode, read_corpus, train_tokenizer
from .draft_model import Draft
from .export import write_json
from .parallel import use_one_thread
from .pipeline import DraftData, draft_data
from .shapes import DRAFTS, TARGETS, VOCAB_SIZE
from .target_model import Target
from .train_draft import train_draft
from .train_target import train_target

DATA_SEED = 40


def hardware_label(device: str) -> str:
    return f"{device}, {platform.machine()}, torch {torch.__version__}"


def load_target(name: str, scratch: Path, device: str) -> Target:
    """The trained target with bfloat16-rounded weights, frozen."""
    target = Target(TARGETS[name][0]).to(device)
    state = torch.load(scratch / f"{name}.pt", weights_only=True, map_location=device)
    target.load_state_dict({key: w.bfloat16().float() for key, w in state.items()})
    return target.requires_grad_(False).eval()


def _load_tokens(scratch: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(scratch / "tokens.npz") as tokens:
        return tokens["train"].astype(np.int64), tokens["held_out"].astype(np.int64)


def make_data(target_name: str, scratch: Path, device: str) -> None:
    """Worker: the sequences of one target."""
    use_one_thread()
    target = load_target(target_name, scratch, device)
    print(f"[{target_name}] generating sequences", flush=True)
    data = draft_data(target, *_load_tokens(scratch), DATA_SEED)
    torch.save(data, scratch / f"{target_name}-data.pt")


def make_draft(name: str, scratch: Path, device: str) -> None:
    """Worker: one draft."""
    use_one_thread()
    plan = DRAFTS[name]
    target = load_target(plan.target, scratch, device)
    data: DraftData = torch.load(scratch / f"{plan.target}-data.pt", weights_only=False)
    draft = train_draft(name, target, plan.shape, data.train.to(device), plan.recipe)
    torch.save(draft.state_dict(), scratch / f"{name}.pt")


@dataclass
class Stages:
    output: Path
    scratch: Path
    device: str = "cpu"
    stdlib: Path | None = None
    resume: bool = False

    def run(self) -> None:
        # futex waits instead of spinning, for the sake of everything else on the machine
        os.environ.setdefault("GOMP_SPINCOUNT", "0")
        use_one_thread()
        corpus = read_corpus(self.stdlib)
        print(f"{len(corpus.train)} files to train on, {len(corpus.held_out)} held out")
        tokenizer = train_tokenizer(corpus.train, VOCAB_SIZE)
        train, held_out = encode(tokenizer, corpus.train), encode(tokenizer, corpus.held_out)
        np.savez_compressed(
            self.scratch / "tokens.npz",
            train=train.astype(np.int16),
            held_out=held_out.astype(np.int16),
        )
        write_tokenizer(self.output / "tokenizer", tokenizer)
        write_prompts(self.output / "prompts.json", tokenizer, held_out)

        for name, (shape, recipe) in TARGETS.items():
            if self._missing(name):
                file = self.scratch / f"{name}.pt"
                train_target(shape, recipe, train, held_out, file, self.device)
                self._hardware(name).write_text(hardware_label(self.device))
        self._make_drafts()

        targets = {name: load_target(name, self.scratch, "cpu") for name in TARGETS}
        report = write_targets(self.output, targets, corpus, train, held_out)
        for name, entry in report["targets"].items():
            entry["trained_on"] = self._hardware(name).read_text()
            print(
                f"[{name}] held-out loss {entry['held_out_loss']} nats, trigram "
                f"{report['baseline_loss']['trigram']}, lead {entry['lead_over_trigram']}"
            )
        write_json(self.output / "training_report.json", report)
        drafts: dict[str, Draft] = {}
        for name, plan in DRAFTS.items():
            drafts[name] = Draft(plan.shape)
            state = torch.load(self.scratch / f"{name}.pt", weights_only=True, map_location="cpu")
            drafts[name].load_state_dict(state)
        data = {
            name: torch.load(
                self.scratch / f"{name}-data.pt", weights_only=False, map_location="cpu"
            )
            for name in TARGETS
        }
        accuracies = write_drafts(self.output, targets, drafts, data)
        for name, accuracy in accuracies.items():
            generations = accuracy["held_out_generations"]
            print(f"[{name}] per-step accuracy {generations['accuracy']} on held-out generations")

    def _hardware(self, name: str) -> Path:
        return self.scratch / f"{name}.hardware.txt"

    def _missing(self, name: str) -> bool:
        done = self.resume and (self.scratch / f"{name}.pt").exists()
        if done:
            print(f"[{name}] taken from {self.scratch}")
        return not done

    def _make_drafts(self) -> None:
        """Two single-threaded workers: data of both targets first, then the drafts."""
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=2, mp_context=spawn) as pool:
            data: dict[str, Future[None]] = {
                name: pool.submit(make_data, name, self.scratch, self.device)
                for name in TARGETS
                if self._missing(f"{name}-data")
            }
            drafts: list[Future[None]] = []
            for name, plan in sorted(DRAFTS.items(), key=lambda item: item[1].target != "llama"):
                if not self._missing(name):
                    continue
                if plan.target in data:
                    data[plan.target].result()
                drafts.append(pool.submit(make_draft, name, self.scratch, self.device))
            for future in [*data.values(), *drafts]:
                future.result()
