"""Captured requests, put together from their pieces. Holes are named, never closed up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from sglang_eagle3_probe.capture.layout import (
    FORMAT,
    METADATA_KEY,
    SUFFIX,
    PieceInfo,
    rules_of,
    shape_fault,
)
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.checkpoint.safetensors_file import INTEGER_CODES, read_description
from sglang_eagle3_probe.offline.captured_ranks import RanksKnown, TraceRanks
from sglang_eagle3_probe.offline.stored_tensors import load_tensor

FOLDER = "captures"
"""Below the probe's folder."""
POSITIONS = 1 << 24
"""No served context is longer; a position beyond is a damaged file's."""


@dataclass(frozen=True)
class Piece:
    """One file: its description, and its tensors by name (see ``capture.layout``)."""

    path: Path
    info: PieceInfo
    tensors: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Hole:
    """Positions ``start`` to ``stop - 1`` have no aux states, and why."""

    start: int
    stop: int
    why: str


@dataclass(frozen=True)
class CapturedRequest:
    """One request along its positions, prompt and answer.

    Attributes:
        token_ids: int64 [L]; -1 where not known.
        aux: [L, A*H] in the capture's dtype, as handed to the draft; zeros where not known.
        aux_known: bool [L].
        boundary_states: [L, B, H], or None; rows known where ``boundaries_known`` says so.
        final_norm: [L, H], or None, known where ``boundaries_known`` says so.
        rounds: name -> the rounds' tensors, one row a verify round; empty without rounds.
            ``accepted_nodes`` and so on as in ``capture.layout.ROUNDS``, without the states.
            ``ranks`` come from the trace beside the files; -1 where they are not known.
        ranks: of how many rounds; None without rounds.
        holes: where aux is not known, and why.
        lost: what the server says it could not write.
    """

    info: PieceInfo
    token_ids: torch.Tensor
    aux: torch.Tensor
    aux_known: torch.Tensor
    boundary_states: torch.Tensor | None
    final_norm: torch.Tensor | None
    boundaries_known: torch.Tensor
    rounds: dict[str, torch.Tensor]
    holes: tuple[Hole, ...]
    ranks: RanksKnown | None = None
    lost: tuple[str, ...] = ()
    pieces: int = 0
    paths: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def complete(self) -> bool:
        """Every position from 0 to the last captured one has its aux states."""
        return not self.holes


def read_piece(path: Path, *, limit_bytes: int = 1 << 34) -> Piece:
    """Reads one capture file.

    Raises:
        CheckpointError: it is no capture file, of a later format, damaged, or its tensors do not
            have the shapes that its description says.
    """
    entries, metadata = read_description(path, path.name)
    text = metadata.get(METADATA_KEY)
    if text is None:
        raise CheckpointError(
            f"{shown(path)} is a safetensors file without the description of a capture "
            f"({METADATA_KEY}). Fix: give files that a server wrote with the probe at level "
            "capture."
        )
    try:
        info = msgspec.json.decode(text.encode(), type=PieceInfo)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise CheckpointError(
            f"{shown(path)}: its description cannot be read ({error}). Fix: capture again."
        ) from None
    if info.format > FORMAT:
        raise CheckpointError(
            f"{shown(path)} has format {info.format}, this version reads up to {FORMAT}. "
            "Fix: pip install -U sglang-eagle3-probe."
        )
    shapes = {name: entry.info.shape for name, entry in entries.items()}
    fault = shape_fault(info, shapes)
    if fault is not None:
        raise CheckpointError(f"{shown(path)} {fault}. Fix: capture again.")
    rules = rules_of(info.kind)
    tensors = {}
    for name, entry in entries.items():
        if name not in rules:
            continue
        integers = entry.info.dtype in INTEGER_CODES
        if integers != (rules[name].kind == "ids"):
            raise CheckpointError(
                f"{shown(path)}: {name} is {entry.info.dtype}, expected "
                f"{'whole numbers' if rules[name].kind == 'ids' else 'floating point'}. "
                "Fix: capture again."
            )
        tensor = load_tensor(path, name, entry, limit_bytes=limit_bytes)
        tensors[name] = tensor.to(torch.int64) if integers else tensor
    for name in ("positions", "root_positions", "node_positions"):
        _check_range(path, name, tensors.get(name), 0, POSITIONS)
    _check_range(path, "accepted_nodes", tensors.get("accepted_nodes"), -1, _node_count(shapes))
    return Piece(path, info, tensors)


def _node_count(shapes: dict[str, tuple[int, ...]]) -> int:
    """Nodes of a round's tree, by the shape of ``node_ids``; 0 in a prefill piece."""
    return shapes["node_ids"][1] if "node_ids" in shapes else 0


def _check_range(path: Path, name: str, values: torch.Tensor | None, low: int, end: int) -> None:
    if values is None or not values.numel():
        return
    smallest, largest = int(values.min()), int(values.max())
    if smallest < low or largest >= end:
        raise CheckpointError(
            f"{shown(path)}: {name} holds {smallest} to {largest}, expected {low} to {end - 1}. "
            "Fix: capture again."
        )


def capture_files(source: Path) -> list[Path]:
    """The capture files that a path names: a file, their folder, or the probe's folder.

    Raises:
        CheckpointError: there is none.
    """
    if source.is_file():
        return [source]
    for folder in (source / FOLDER, source):
        found = sorted(folder.glob(f"capture-*{SUFFIX}")) if folder.is_dir() else []
        if found:
            return found
    raise CheckpointError(
        f"{shown(source)} has no capture files (capture-*{SUFFIX}, there or in {FOLDER}/). Fix: "
        "serve with SGLANG_EAGLE3_PROBE_LEVEL=capture, send a request, and give the probe's folder."
    )


def read_requests(source: Path, *, limit_bytes: int = 1 << 34) -> Iterator[CapturedRequest]:
    """The captured requests below a path, one at a time, in the order of their files.

    Raises:
        CheckpointError: no file is there, or one cannot be read.
    """
    group: list[Piece] = []
    files = capture_files(source)
    ranks = TraceRanks(files)
    for path in files:
        piece = read_piece(path, limit_bytes=limit_bytes)
        # One name may be used for two requests of a client; piece 0 always starts anew.
        if group and (piece.info.request != group[0].info.request or piece.info.piece == 0):
            yield assemble(group, limit_bytes=limit_bytes, ranks=ranks)
            group = []
        group.append(piece)
    if group:
        yield assemble(group, limit_bytes=limit_bytes, ranks=ranks)


def assemble(
    pieces: list[Piece], *, limit_bytes: int = 1 << 34, ranks: TraceRanks | None = None
) -> CapturedRequest:
    """Puts the pieces of one request together, in the order of their numbers.

    Args:
        ranks: where those of refused drafts are looked up.
    """
    pieces = sorted(pieces, key=lambda piece: piece.info.piece)
    info = pieces[0].info
    rows: list[tuple[torch.Tensor, torch.Tensor, Piece, torch.Tensor | None]] = []
    for piece in pieces:
        rows.append(_prefill_rows(piece) if piece.info.kind == "prefill" else _round_rows(piece))
    length = max((int(positions.max()) + 1 for positions, *_ in rows if len(positions)), default=0)
    length = max(length, *(_end_of_ids(piece) for piece in pieces))
    aux = pieces[0].tensors["aux"]
    if length * aux.shape[-1] * aux.element_size() > limit_bytes:
        raise CheckpointError(
            f"request {shown(info.request)} reaches position {length - 1}, which takes more than "
            f"{limit_bytes} bytes of aux states. Fix: capture a shorter request."
        )
    tokens = torch.full((length,), -1, dtype=torch.int64)
    states = torch.zeros((length, aux.shape[-1]), dtype=aux.dtype)
    known = torch.zeros(length, dtype=torch.bool)
    boundaries_known = torch.zeros(length, dtype=torch.bool)
    stacks: dict[str, torch.Tensor] = {}
    for positions, ids, piece, picked in rows:
        _write_ids(tokens, piece)
        tokens[positions] = ids
        states[positions] = _rows(piece.tensors["aux"], picked)
        known[positions] = True
        for name in ("boundary_states", "final_norm"):
            if name in piece.tensors:
                values = _rows(piece.tensors[name], picked)
                if name not in stacks:
                    stacks[name] = torch.zeros((length, *values.shape[1:]), dtype=values.dtype)
                stacks[name][positions] = values
                boundaries_known[positions] = True
    rounds = _joined_rounds(pieces)
    known_ranks = None
    if rounds:
        source = TraceRanks([piece.path for piece in pieces]) if ranks is None else ranks
        rounds["ranks"], known_ranks = source.of(pieces[0].path, info.request, rounds)
    return CapturedRequest(
        info=info,
        token_ids=tokens,
        aux=states,
        aux_known=known,
        boundary_states=stacks.get("boundary_states"),
        final_norm=stacks.get("final_norm"),
        boundaries_known=boundaries_known,
        rounds=rounds,
        holes=tuple(_holes(known, pieces)),
        ranks=known_ranks,
        lost=tuple(text for piece in pieces for text in piece.info.lost),
        pieces=len(pieces),
        paths=tuple(piece.path for piece in pieces),
    )


def _prefill_rows(piece: Piece) -> tuple[torch.Tensor, torch.Tensor, Piece, torch.Tensor | None]:
    return piece.tensors["positions"], piece.tensors["token_ids"], piece, None


def _round_rows(piece: Piece) -> tuple[torch.Tensor, torch.Tensor, Piece, torch.Tensor | None]:
    """Positions, ids and (round, node) pairs of the accepted paths, which stay in the sequence."""
    accepted = piece.tensors["accepted_nodes"]
    rounds, depths = torch.nonzero(accepted >= 0, as_tuple=True)
    picked = torch.stack([rounds, accepted[rounds, depths]], dim=1)
    ids = piece.tensors["node_ids"][picked[:, 0], picked[:, 1]]
    return piece.tensors["root_positions"][rounds] + depths, ids, piece, picked


def _rows(values: torch.Tensor, picked: torch.Tensor | None) -> torch.Tensor:
    return values if picked is None else values[picked[:, 0], picked[:, 1]]


def _end_of_ids(piece: Piece) -> int:
    """One past the last position whose token this piece tells."""
    if piece.info.kind == "prefill":
        prompt = piece.tensors.get("prompt_ids")
        positions = piece.tensors["positions"]
        end = int(positions.max()) + 1 if len(positions) else 0
        if "next_id" in piece.tensors and not piece.info.more_chunks:
            end += 1
        return max(end, len(prompt) if prompt is not None else 0)
    if not len(piece.tensors["root_positions"]):
        return 0
    accepted = (piece.tensors["accepted_nodes"] >= 0).sum(dim=1)
    return int((piece.tensors["root_positions"] + accepted).max()) + 1


def _write_ids(tokens: torch.Tensor, piece: Piece) -> None:
    """Ids at positions whose states this piece does not have: prompt, next and bonus tokens."""
    if piece.info.kind == "prefill":
        prompt = piece.tensors.get("prompt_ids")
        if prompt is not None:
            tokens[: len(prompt)] = prompt
        positions = piece.tensors["positions"]
        if "next_id" in piece.tensors and not piece.info.more_chunks and len(positions):
            tokens[int(positions.max()) + 1] = piece.tensors["next_id"][0]
        return
    accepted = (piece.tensors["accepted_nodes"] >= 0).sum(dim=1)
    tokens[piece.tensors["root_positions"] + accepted] = piece.tensors["bonus_ids"]


def _joined_rounds(pieces: list[Piece]) -> dict[str, torch.Tensor]:
    rounds = [piece.tensors for piece in pieces if piece.info.kind == "rounds"]
    # A piece that only says that the request has ended holds less than the others.
    rounds = [tensors for tensors in rounds if len(tensors["root_positions"])] or rounds
    if not rounds:
        return {}
    names = set(rounds[0]).intersection(*rounds) - {"aux", "boundary_states", "final_norm"}
    return {name: torch.cat([tensors[name] for tensors in rounds]) for name in sorted(names)}


def _holes(known: torch.Tensor, pieces: list[Piece]) -> Iterator[Hole]:
    cached = pieces[0].info.cached_tokens
    seen = {piece.info.piece for piece in pieces}
    missing = sorted(set(range(max(seen) + 1)) - seen)
    last = int(known.nonzero().max()) + 1 if bool(known.any()) else 0
    start: int | None = None
    for position in range(last + 1):
        if position < last and not bool(known[position]):
            start = position if start is None else start
        elif start is not None:
            why = "not captured"
            if start < cached:
                why = "came from the prefix cache: this request did not compute them"
            elif missing:
                why = f"pieces {missing} are not there"
            yield Hole(start, position, why)
            start = None
