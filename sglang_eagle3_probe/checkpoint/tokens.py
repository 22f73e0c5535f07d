"""How often each token occurs in a file: token ids as they are, text through a tokenizer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, plausible
from sglang_eagle3_probe.checkpoint.files import opened, read_exactly, shown
from sglang_eagle3_probe.checkpoint.reader import located

LIMIT = 256 << 20
KEYS = ("input_ids", "token_ids", "tokens", "output_ids")
FORMS = (
    "expected token ids (numbers apart from each other, a JSON list, or JSON lines with lists or "
    f"with one of {', '.join(KEYS)}), or text beside a target folder with tokenizer.json"
)


def count_tokens(file: str, target: str) -> dict[int, int]:
    """Token id -> occurrences, for a file of ids or of text."""
    path = Path(file)
    with opened(path) as (handle, size):
        if size > LIMIT:
            raise CheckpointError(f"{shown(file)} is larger than {LIMIT >> 20} MB; a part will do.")
        data = read_exactly(handle, 0, size)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointError(f"{shown(file)} is not UTF-8 text; {FORMS}.") from None
    counts: Counter[int] = Counter()
    if not _from_json(text, counts) and not _from_numbers(text, counts):
        counts = _from_text(file, text, target)
    bad = next((token for token in counts if token < 0), None)
    if bad is not None:
        raise CheckpointError(f"{shown(file)} holds token id {bad}, expected no negative ones.")
    if not counts:
        raise CheckpointError(f"{shown(file)} holds no tokens; {FORMS}.")
    return dict(sorted(counts.items()))


def _from_json(text: str, counts: Counter[int]) -> bool:
    if text.lstrip()[:1] not in ("[", "{"):
        return False
    try:
        rows: Iterable[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        try:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return False
    return all(_add(row, counts, 0) for row in rows)


def _add(row: Any, counts: Counter[int], depth: int) -> bool:
    if isinstance(row, dict):
        row = next((row[key] for key in KEYS if key in row), None)
    if not isinstance(row, list) or depth > 3:
        return False
    if all(plausible(entry) is not None for entry in row):
        counts.update(row)
        return True
    return all(_add(entry, counts, depth + 1) for entry in row)


def _from_numbers(text: str, counts: Counter[int]) -> bool:
    words = text.replace(",", " ").split()
    if not words or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        return False
    counts.update(int(word) for word in words)
    return True


def _from_text(file: str, text: str, target: str) -> Counter[int]:
    place = located(target)
    tokenizer = (place if place.is_dir() else place.parent) / "tokenizer.json"
    if not tokenizer.is_file():
        raise CheckpointError(f"{shown(file)} holds no token ids; {FORMS}.")
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise CheckpointError(
            f"{shown(file)} is text, and cutting it into tokens needs the tokenizers package. "
            "Fix: pip install tokenizers, or give a file of token ids."
        ) from None
    try:
        encoded = Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(
            f"{shown(tokenizer)} cannot be used ({shown(error)}). Fix: give a file of token ids."
        ) from None
    return Counter(encoded.ids)
