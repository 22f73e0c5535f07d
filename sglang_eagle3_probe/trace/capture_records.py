"""Records of level ``capture``: what was written to capture files, and what could not be."""

from __future__ import annotations

import msgspec

from sglang_eagle3_probe.trace.record_base import Record


class CapturePiece(Record, tag="capture_piece", kw_only=True):
    """One piece of a captured request. Every tensor-parallel rank writes this record; only rank 0
    writes the file.

    rid: digest of the request id. request: number of the captured request in this process, from 0;
    equal numbers of different ranks are the same request. digests: tensor name -> digest of its
    bytes: equal digests of a piece on different ranks mean equal values.
    """

    rid: str
    request: int
    piece: int
    kind: str
    rows: int
    """Prompt rows, or verify rounds."""
    bytes: int
    file: str = ""
    """Name below ``captures/``; empty on ranks that do not write, and when it was not written."""
    digests: dict[str, str] = msgspec.field(default_factory=dict)


class Capture(Record, tag="capture", kw_only=True):
    """A captured request has ended.

    lost: reason -> how many rows or rounds are not in its files; empty on a whole capture.
    """

    rid: str
    request: int
    pieces: int
    bytes: int
    folder: str
    """Empty on ranks that do not write."""
    first_file: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    rounds: int
    all_boundaries: bool
    lost: dict[str, int] = msgspec.field(default_factory=dict)
