"""Lines of a trace file as records, many at a time.

A block of lines goes through the decoder in one ``map``, without a Python statement per line. It is
taken apart line by line only where something in it is damaged or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, get_args

import msgspec

from sglang_eagle3_probe.trace.records import AnyRecord

BLOCK_BYTES = 128 * 1024
"""Records of a block fit into the processor's cache: eight times as many take a third longer."""

_ANY = msgspec.json.Decoder(AnyRecord)
KNOWN_TYPES = frozenset(str(m.__struct_config__.tag) for m in get_args(AnyRecord))


def decode_line(line: bytes) -> AnyRecord:
    """One line as a record. ``msgspec.DecodeError`` if it is torn, of an unknown type, or bad."""
    return _ANY.decode(line)


def decode_whole(block: bytes) -> list[AnyRecord] | None:
    """All lines of a block; ``None`` unless every line is one good record."""
    # Not decode_lines: it takes two records on a line, or one record on two, for good.
    try:
        return list(map(_ANY.decode, block.split(b"\n")[:-1]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def blocks(stream: BinaryIO, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Whole lines, about ``size`` bytes at a time; the last block may lack its newline."""
    rest = b""
    while chunk := stream.read(size):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
    if rest:
        yield rest


def records_in(block: bytes) -> Iterator[AnyRecord]:
    """The good records of a block; what cannot be read is left out."""
    whole = decode_whole(block) if block.endswith(b"\n") else None
    if whole is not None:
        yield from whole
        return
    for line in block.splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                yield decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
