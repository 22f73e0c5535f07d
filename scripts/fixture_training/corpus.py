"""Text and tokenizer: the standard library's own sources, split by file.

Every Python installation carries this text, so the fixtures can be made again without a
download. Tests and generated tables are left out: their long near-duplicates would leak from the
training split into the held-out split.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
HELD_OUT_SHARE = 20
"""One file in this many is held out."""

_LEFT_OUT = frozenset(
    {
        *("site-packages", "dist-packages", "__pycache__", "__phello__"),
        *("test", "tests", "idle_test", "encodings", "pydoc_data", "lib2to3", "turtledemo"),
    }
)
_LEFT_OUT_NAMES = ("_sysconfigdata", "sitecustomize", "usercustomize")


@dataclass(frozen=True)
class Corpus:
    """The two splits as texts, one string per source file, in path order."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    digest: str

    @property
    def size_bytes(self) -> int:
        return sum(len(text.encode()) for text in self.train + self.held_out)


def _is_held_out(relative_path: str) -> bool:
    digest = hashlib.sha256(relative_path.encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_SHARE == 0


def read_corpus(root: Path | None = None) -> Corpus:
    """Read the ``.py`` files below ``root`` (default: this Python's standard library)."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    splits: dict[bool, list[str]] = {True: [], False: []}
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _LEFT_OUT.intersection(relative.parts) or path.name.startswith(_LEFT_OUT_NAMES):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if not text.strip():
            continue
        digest.update(relative.as_posix().encode() + b"\0" + text.encode() + b"\0")
        splits[_is_held_out(relative.as_posix())].append(text)
    return Corpus(tuple(splits[False]), tuple(splits[True]), digest.hexdigest())


def train_tokenizer(texts: tuple[str, ...], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE; id 0 is the end-of-text token and separates files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def encode(tokenizer: PreTrainedTokenizerFast, texts: tuple[str, ...]) -> np.ndarray:
    """Encode texts to one stream of int64 ids, end-of-text before every file. Shape (tokens,)."""
    stream: list[int] = []
    for encoding in tokenizer.backend_tokenizer.encode_batch(list(texts)):
        stream.append(END_OF_TEXT_ID)
        stream.extend(encoding.ids)
    return np.asarray(stream, dtype=np.int64)
