"""Whether a draft's own embedding is a copy of the target's, by some rows of each."""

from __future__ import annotations

from pathlib import Path

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, CheckpointFacts, EmbeddingRows
from sglang_eagle3_probe.checkpoint.files import (
    INDEX_LIMIT,
    inside,
    opened,
    read_exactly,
    read_object,
)
from sglang_eagle3_probe.checkpoint.reader import INDEX, SHARD, located, shard_name
from sglang_eagle3_probe.checkpoint.safetensors_file import Entry, read_header

ROWS = 256
"""Spread over the vocabulary: a few megabytes, whatever the size of the model."""
NAME = "embed_tokens.weight"
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4}
NOT_TEXT = ("visual", "vision", "audio", ".layers.")
"""Parts of names of other embeddings: of towers, and of layers for multi-token prediction."""


def compared_embeddings(target: str, draft: str, facts: CheckpointFacts) -> EmbeddingRows | None:
    """Compare rows at even distances, bit for bit; float32 counts by its bfloat16 half.

    Args:
        target, draft: as the user gave them. facts: of the draft.

    Returns:
        None: the draft has no embedding of its own, or the two cannot be compared.
    """
    if facts.tensor(NAME) is None:
        return None
    try:
        return _compared(_embedding(located(target)), _embedding(located(draft)))
    except (CheckpointError, OSError):
        return None


def _embedding(folder: Path) -> tuple[Path, Entry] | None:
    if not folder.is_dir():
        return None
    if (folder / INDEX).exists():
        listed = read_object(inside(folder, folder / INDEX), INDEX_LIMIT).get("weight_map")
        pairs = list(listed.items()) if isinstance(listed, dict) else []
    else:
        pairs = [
            (name, path.name)
            for path in sorted(folder.glob(f"*{SHARD}"))
            for name in read_header(inside(folder, path), path.name)
        ]
    found = sorted(
        (len(name), name, file)
        for name, file in pairs
        if name.endswith(NAME) and not any(part in name for part in NOT_TEXT)
    )
    if not found:
        return None
    _, name, file = found[0]
    path = inside(folder, folder / shard_name(folder, file))
    entry = read_header(path, path.name).get(name)
    return None if entry is None else (path, entry)


def _compared(
    target: tuple[Path, Entry] | None, draft: tuple[Path, Entry] | None
) -> EmbeddingRows | None:
    if target is None or draft is None:
        return None
    shapes = [entry.info.shape for _, entry in (target, draft)]
    if any(len(shape) != 2 or 0 in shape for shape in shapes) or shapes[0][1] != shapes[1][1]:
        return None
    kinds = {entry.info.dtype for _, entry in (target, draft)}
    if not kinds <= WIDTHS.keys() or (len(kinds) > 1 and "F16" in kinds):
        return None
    count = min(shape[0] for shape in shapes)
    wanted = sorted({i * count // ROWS for i in range(ROWS)})
    rows = [_rows(*side, wanted, halved=len(kinds) > 1) for side in (target, draft)]
    differ = sum(mine != theirs for mine, theirs in zip(*rows, strict=True))
    return EmbeddingRows(len(wanted), differ)


def _rows(path: Path, entry: Entry, wanted: list[int], *, halved: bool) -> list[bytes]:
    size = entry.info.shape[1] * WIDTHS[entry.info.dtype]
    with opened(path) as (file, _):
        rows = [read_exactly(file, entry.start + row * size, size) for row in wanted]
    return [_upper_half(row) for row in rows] if halved and entry.info.dtype == "F32" else rows


def _upper_half(row: bytes) -> bytes:
    """float32 cut to bfloat16, little-endian."""
    cut = bytearray(len(row) // 2)
    cut[0::2], cut[1::2] = row[2::4], row[3::4]
    return bytes(cut)
