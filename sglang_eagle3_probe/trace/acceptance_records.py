"""Who was served, what became of each draft, and how long it took."""

from __future__ import annotations

from typing import Literal

import msgspec

from sglang_eagle3_probe.trace.record_base import Record


class VerifyRound(Record, tag="verify_round", kw_only=True):
    """One verify round of one batch, column-wise; entry i of each list is the same request.

    ``correct_drafts`` excludes the bonus token; accept length is ``correct_drafts + 1``.
    """

    steps: int
    """Draft positions proposed per request (``speculative_num_steps`` in force)."""
    topk: int
    proposed_drafts: int
    """Draft tokens submitted per request (``num_draft_tokens - 1``; more than steps in a tree)."""
    rids: list[str]
    """Request id digests, 12 hex digits."""
    rounds: list[int]
    """0-based verify round within the request."""
    context_lens: list[int]
    """Tokens of the request before this round (prompt and output)."""
    correct_drafts: list[int]
    not_counted: list[str] = []
    """rid digests of rows computed after their request had ended (overlap); in no list above."""
    out_of_vocab: list[bool | None] = []
    """Per request, of the round's bonus token: whether the draft vocabulary lacks it. Where a draft
    was refused, that token stands in its place, so true means that no draft could have been right.
    ``None`` where no map is in force or the token is not on the CPU. Empty in older traces."""
    greedy: list[bool] = []
    """Per request: verified against the target's argmax rather than by sampling."""
    looked_at: list[bool] = []
    """Per request: whether a ``refusals`` record would tell why a draft was refused in this round
    (level ``stats`` looks at some rounds: ``SGLANG_EAGLE3_PROBE_REFUSAL_EVERY``). Empty: all were,
    or none ever are (level ``wiring``, older traces)."""


class RequestStart(Record, tag="request_start", kw_only=True):
    """A request at its first verify round in this process."""

    rid: str
    """Digest, 12 hex digits."""
    prompt_tokens: int
    cached_tokens: int | None
    """Prompt tokens found in the prefix cache; ``None`` where SGLang does not say."""
    chunked_prefill: bool | None
    """The prompt was prefilled in several pieces."""
    temperature: float | None
    greedy: bool | None
    grammar: bool
    """Constrained by a grammar (JSON schema, regular expression, ...)."""


class RequestEnd(Record, tag="request_end", kw_only=True):
    """A request as SGLang counts it at its end; equals ``meta_info`` of the answer."""

    rid: str
    reason: str
    """``stop``, ``length``, ``abort`` or what SGLang calls it."""
    output_tokens: int
    verify_rounds: int
    """``spec_verify_ct``."""
    correct_drafts: int | None
    """``spec_num_correct_drafts`` (``spec_accepted_tokens`` before 0.5.12)."""
    histogram: list[int] | None
    """Rounds by number of correct drafts; ``None`` where SGLang keeps none."""
    cut_tokens: int = 0
    """Tokens accepted in the last round that came after the end and were thrown away."""
    retractions: int = 0
    """How often the request lost its cache and was computed anew."""


class Refusals(Record, tag="refusals", kw_only=True):
    """Why drafts of one verify round were refused (level ``stats``): read from the device later.

    Column-wise; entry i of each list is the same request, as in ``verify_round``, to which ``rids``
    and ``rounds`` join it. Only requests with a refused draft are listed.
    """

    rids: list[str]
    rounds: list[int]
    positions: list[int]
    """0-based position of the first refused draft; equals the round's correct drafts."""
    ranks: list[int | None]
    """Rank, from 1, of the target's token in the draft's distribution at that position, over the
    draft vocabulary. ``None``: not in the draft vocabulary, the logits were not seen, or there are
    none (``unexpanded``)."""
    target_argmax_matches: list[bool | None]
    """The refused draft was the target's argmax (or among the drafts submitted there, in a tree):
    greedy verification would have taken it."""
    unexpanded: list[bool] = []
    """Trees: the draft was not run on the last right draft, which was not among the topk beams of
    its step, so that nothing could follow it. Empty in older traces."""


class PhaseTime(msgspec.Struct, kw_only=True):
    """Times of one kind of work at one batch size."""

    phase: Literal["verify", "draft", "draft_extend", "prefill", "decode"]
    """``draft`` is all draft decode steps of a round; ``decode`` a plain decode step without
    speculation."""
    batch_size: int
    count: int
    mean_ms: float
    least_ms: float
    median_ms: float
    greatest_ms: float


class PhaseTimes(Record, tag="phase_times", kw_only=True):
    """How long the phases of a round took since the record before.

    clock: ``device`` (CUDA events around the work, read later without waiting) or ``host`` (wall
    clock; right where work is synchronous, as on a CPU).
    """

    clock: Literal["device", "host"]
    steps: int
    """Draft steps of a round, so that ``draft`` can be divided."""
    topk: int
    draft_tokens: int
    phases: list[PhaseTime]
    overlapped: bool = False
    """Phases of different rounds ran side by side; their sum exceeds the round's time."""
    not_timed: int = 0
    """Units of work that went untimed because every event pair was in use."""
