"""What a trace line may be. The single definition for writer, reader and reports.

Every record is one JSON object on one line; its ``type`` says which struct below it is.
Lists of layers are always *boundaries* (0 = embedding output, i = the residual stream that enters
layer i) or *output ids* (boundary - 1), and every field name says which.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.cost_records import ProbeCost
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.static_records import StaticFindings

FORMAT_VERSION = 1
"""Raised when a reader of the previous version could misread a line; new fields do not raise it."""

Phase = Literal["target_prefill", "target_verify", "target_decode", "target_other"]
DraftPhase = Literal["extend_prefill", "extend_verify", "decode"]
FcState = Literal["taken", "bypassed", "absent"]


class Ranks(msgspec.Struct, kw_only=True):
    """Which part of the deployment wrote the file; ``None`` where SGLang did not say."""

    tp_rank: int | None = None
    tp_size: int | None = None
    dp_rank: int | None = None
    dp_size: int | None = None
    pp_rank: int | None = None
    pp_size: int | None = None


class Header(Record, tag="header", kw_only=True):
    """First line of every file, repeated first in every rotated part."""

    format_version: int = FORMAT_VERSION
    probe_version: str
    sglang_version: str
    versions: dict[str, str]
    """Other packages that decide behaviour (torch, transformers, triton, flashinfer, wrapt)."""
    pid: int
    role: str
    """``scheduler`` (the process that runs the model) or ``main``."""
    ranks: Ranks
    level: str
    patches: list[str]
    settings: dict[str, str]
    """Every probe variable in force, as written in docs/configuration.md."""
    part: int = 0


class SeamState(msgspec.Struct, kw_only=True):
    """One row of the seam table, as it ended up in this process."""

    name: str
    target: str
    state: Literal["patched", "absent", "failed", "not_imported"]
    why: str = ""
    """For absent: the version range. For failed: the error. Empty when patched."""
    used_by: list[str] = []


class Seams(Record, tag="seams", kw_only=True):
    """The seam report: which places of SGLang the probe is attached to."""

    seams: list[SeamState]
    release_proved: bool
    """False: this SGLang release is newer or older than those the seam table was checked on."""


class Arguments(Record, tag="arguments", kw_only=True):
    """Speculation arguments: as asked on the command line and as SGLang runs them."""

    asked: dict[str, Any]
    in_force: dict[str, Any]
    target_architecture: str = ""
    draft_architecture: str = ""
    target_path: str = ""
    draft_path: str = ""
    target_num_layers: int | None = None
    target_hidden_size: int | None = None
    draft_hidden_size: int | None = None
    target_vocab_size: int | None = None
    draft_vocab_size: int | None = None
    worker_class: str = ""
    worker_generation: Literal["V1", "V2", "unknown"] = "unknown"


class Slot(msgspec.Struct, kw_only=True):
    """One aux slot: a column block of the concatenation that the draft's ``fc`` reads."""

    boundary: int
    output_id: int
    origin: str
    """Where this id came from, e.g. ``draft config eagle_config``, ``variable``, ``default``."""


class LayerIds(Record, tag="layer_ids", kw_only=True):
    """Which target boundaries are captured, and how the configured list became them."""

    model_class: str
    num_layers: int
    configured: list[int] | None
    """The list as written; ``None`` when nothing was configured and SGLang's default holds."""
    configured_at: str
    """``eagle_config`` | ``variable`` | ``default``."""
    unit: Literal["output_id", "boundary", "default"]
    """How the list was read."""
    unit_why: str
    slots: list[Slot]
    """In concatenation order: what reaches the draft, block by block."""
    stock_boundaries: list[int] | None
    """What unpatched SGLang would have captured (ascending); ``None`` if it would have failed."""
    stock_error: str = ""
    source_patched: bool = False
    """SGLang's own files hold our source diffs; ``stock`` is then what they make of the list."""
    patches_applied: list[str] = []
    ignored_keys: dict[str, list[int]] = {}
    """Id lists in places of the draft's config that this SGLang does not read: key -> list."""
    trained_output_ids: list[int] | None = None
    """What the draft was trained on, if the trainer left word; output ids in training order."""
    trained_source: str = ""
    draft_num_aux: int | None = None
    """How many slots the draft's ``fc`` expects; ``None`` before the draft is loaded."""


class AuxStates(Record, tag="aux_states", kw_only=True):
    """Aux hidden states as the target's logits processor received them.

    Written at the first forward of each distinct shape class and when a count doubles; ``calls``
    and ``rows_total`` are totals for this key up to now.
    """

    phase: Phase
    forward_mode: str
    capture_hidden_mode: str
    count: int | None
    """Number of slots K, or ``None`` when no aux states arrived."""
    packed: bool
    """One [rows, K * width] tensor rather than K tensors of [rows, width]."""
    widths: list[int]
    """Per slot."""
    hidden_width: int
    rows: int
    dtype: str
    device: str
    boundaries: list[int]
    """In concatenation order."""
    reordered: bool
    """capture_order permuted the slots."""
    in_graph_capture: bool
    """Seen while a CUDA graph was being captured; its replays are not counted here."""
    calls: int
    rows_total: int


class TargetExtend(Record, tag="target_extend", kw_only=True):
    """The target's prefill forward and what of it is handed to the draft.

    V1: ``EAGLEWorker.forward_target_extend``; V2: ``EagleDraftWorker._draft_extend_for_prefill``.
    """

    worker_generation: Literal["V1", "V2"]
    capture_hidden_mode: str
    logits_shape: list[int] | None
    hidden_states_shape: list[int] | None
    """[prompt rows, K * width] as returned by the target."""
    handed_hidden_states_shape: list[int] | None
    """The same tensor as the draft extend received it."""
    next_token_ids_shape: list[int] | None
    batch_size: int | None
    extend_lens: list[int] | None
    calls: int


class DraftForward(Record, tag="draft_forward", kw_only=True):
    """One class of draft forwards: what came in and whether ``fc`` projected it.

    Bypassing ``fc`` is right in ``decode`` (the draft's own state comes back in) and wrong in both
    extends. Written when a distinct key is first seen and when a count doubles.
    """

    phase: DraftPhase
    model_class: str
    width_in: int
    embed_width: int
    fc: FcState
    fc_in_features: int | None
    fc_out_features: int | None
    rows: int
    dtype: str
    calls: int
    rows_total: int
    in_graph_capture: bool


class VocabMap(Record, tag="vocab_map", kw_only=True):
    """The map from draft vocabulary to target vocabulary (``hot_token_id``)."""

    present: bool
    in_force: bool
    """The worker uses it. False with EAGLE instead of EAGLE3, or when d2t is missing."""
    size: int | None = None
    target_vocab_size: int | None = None
    head_rows: int | None = None
    """Rows of the draft's lm_head; must equal ``size``."""
    minimum: int | None = None
    maximum: int | None = None
    identity_share: float | None = None
    """Share of draft ids i with hot_token_id[i] == i."""
    strictly_increasing: bool | None = None
    duplicates: int | None = None
    equals_d2t_plus_arange: bool | None = None
    agrees_with_t2d: bool | None = None
    """``None`` when the checkpoint carries no t2d."""
    d2t_looks_direct: bool | None = None
    """d2t reads as target ids themselves, not as offsets."""
    digest: str = ""
    full_map: list[int] | None = None


class Tensorprint(msgspec.Struct, kw_only=True):
    """A tensor told apart by few numbers."""

    shape: list[int]
    dtype: str
    digest: str


class Weights(Record, tag="weights", kw_only=True):
    """What became of the draft checkpoint's tensors."""

    model_class: str
    loaded_names: int
    not_taken: list[str]
    """Checkpoint names that no parameter or map took (t2d, which SGLang never reads, excepted)."""
    not_filled: list[str]
    """Parameters that kept their initial value although nothing replaces them later."""
    embed_source: Literal["target", "own", "unknown"] = "unknown"
    head_source: Literal["target", "own", "unknown"] = "unknown"
    own_embed_dropped: bool = False
    """The checkpoint has an embedding and SGLang put the target's in its place."""
    digests: dict[str, Tensorprint] = {}
    """``embed_tokens``, ``lm_head``, ``fc`` as in force on this rank."""


class SlotWindow(msgspec.Struct, kw_only=True):
    """One slot of a tapped tensor over the rows of one window.

    mean, rms and absmax are per row, over its finite columns; here are the mean, least and greatest
    of the rows.
    """

    rms_mean: float
    rms_min: float
    rms_max: float
    mean: float
    absmax: float
    nonfinite: int
    """NaN and infinite values, all rows together."""
    equals_embedding: float | None = None
    """Share of rows that equal, bit for bit, an embedding output of the same window; 1.0 proves
    that this slot is boundary 0. ``None`` where no embedding was tapped."""


class SlotStats(Record, tag="slot_stats", kw_only=True):
    """Values of one tapped tensor over the forwards since the last window (level ``stats``).

    site: ``aux_prefill``, ``aux_verify`` (what the target hands out), ``extend_prefill_in``,
    ``extend_verify_in`` (what reaches the draft), ``..._fc`` and ``..._hidden`` (``fc`` output and
    draft hidden state), ``decode0_in``, ``decode0_hidden``, ... (draft decode steps),
    ``target_embedding``. A *tick* is one forward of the site in this process, counted on the
    device: equal ticks of different ranks are the same forward.
    """

    site: str
    tapped: Literal["replay", "eager", "mixed"]
    """Whether the forwards of this window were CUDA graph replays: the tap is in the graph then."""
    first_tick: int
    last_tick: int
    lost_ticks: int
    """Forwards since the window before that nobody read: the ring is drained every one to five
    seconds, and holds 63 forwards a site."""
    rows: int
    padded_rows_dropped: int
    joined: bool
    """Ticks were matched to verify rounds; otherwise padded rows of graphs are still in."""
    slots: list[SlotWindow]
    boundaries: list[int] = []
    """Boundary of each slot, for the aux sites."""
    same_slots: list[list[int]] = []
    """Pairs of slots that were equal, bit for bit, in every row."""
    found_in_target: float | None = None
    """For ``extend_..._in``: share of rows that equal, bit for bit, a row that the target handed
    out in the same window. Below 1.0 the draft reads something else (stale or truncated buffers).
    """
    tick_digests: dict[str, str] = {}
    """tick -> digest over its rows, for the newest ticks: to compare ranks and runs."""
    sample_tick: int | None = None
    sample_rids: list[str] = []
    """Request digests of the newest tick's rows, in order, where joined."""
    full_rows: list[list[float]] | None = None
    """With SGLANG_EAGLE3_PROBE_STATS_ROWS: [tick, row, slot, mean, rms, absmax, nonfinite,
    fingerprint] each; the fingerprint is the first of ``device.layout``."""


class StatsCoverage(Record, tag="stats_coverage", kw_only=True):
    """Which forward kinds the statistics see, and what they could not tap."""

    tapped: dict[str, Literal["replay", "eager", "mixed"]]
    skipped: dict[str, dict[str, int]]
    """site -> reason -> how often a tensor could not be tapped."""
    refused_drains: dict[str, int]
    ring_bytes: int


class Fault(Record, tag="fault", kw_only=True):
    """The probe's own code raised; the host went on."""

    site: str
    error: str
    traceback: str
    count: int
    disabled: bool
    """This site switched itself off."""


class Losses(msgspec.Struct, kw_only=True):
    """Everything the trace does not hold. All zero on a whole trace."""

    dropped_records: dict[str, int] = {}
    """By record type: the queue was full or the writer could not write."""
    write_errors: int = 0
    last_write_error: str = ""
    rotated_away_files: int = 0
    rotated_away_records: int = 0
    """Records in those files; without it a reader could not tell rotation from loss."""
    faults: dict[str, int] = {}
    """By site."""
    disabled_sites: list[str] = []
    missed: dict[str, int] = {}
    """Level ``stats``: what passed by and was not looked at, so that no record tells of it; by kind
    (docs/trace_format.md). Empty in older traces."""
    captures: dict[str, int] = {}
    """Pieces of captured requests that were not written, by reason."""


class Progress(Record, tag="progress", kw_only=True):
    """Written every few seconds while records flow, so that a killed server leaves its losses."""

    records_written: int
    bytes_written: int
    losses: Losses


class Footer(Record, tag="footer", kw_only=True):
    """Last line of a trace that ended in order."""

    records_written: int
    bytes_written: int
    losses: Losses
    reason: str


AnyRecord = (
    Header
    | Seams
    | Arguments
    | LayerIds
    | AuxStates
    | TargetExtend
    | DraftForward
    | VocabMap
    | Weights
    | StaticFindings
    | VerifyRound
    | RequestStart
    | RequestEnd
    | Refusals
    | PhaseTimes
    | ProbeCost
    | SlotStats
    | StatsCoverage
    | CapturePiece
    | Capture
    | Fault
    | Progress
    | Footer
)
