"""Whether speculation pays, and which part of a round costs what.

All costs are told in *plain steps*: one decode step of the target without speculation at the same
batch size. A round pays when its tokens (the accept length) exceed its cost in plain steps; that
cost is the **break-even accept length**, and the speed-up is accept length / cost.

A plain step and a round are compared on one basis only: work on both sides (phase times), or time
from step to step on both (tokens per second and the spacing of rounds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sglang_eagle3_probe.analysis.acceptance import Acceptance
from sglang_eagle3_probe.analysis.intervals import Interval, mean_interval
from sglang_eagle3_probe.analysis.phase_costs import Costs, Setting, plain_steps

LEAST_GAPS = 20
"""Gaps between rounds that a batch size needs before its spacing counts."""
BEYOND = 2
"""Steps beyond the measured ones that are extrapolated."""

Basis = Literal["phases", "spacing"]


@dataclass(frozen=True)
class Plain:
    """Decoding without speculation, from a calibration run or as told.

    steps_ms: batch size -> milliseconds per step; the key 0 holds for every batch size.
    """

    steps_ms: Mapping[int, float]
    basis: Basis
    source: str
    """``decode phases of this trace``, ``90 tokens/s as given``, a directory's name."""

    def step_ms(self, batch_size: int) -> float | None:
        found = self.steps_ms.get(batch_size, self.steps_ms.get(0))
        return found if found and math.isfinite(found) and found > 0 else None


@dataclass(frozen=True)
class Part:
    """One part of a round. ``ms`` is its time in a round, ``steps`` the same in plain steps."""

    name: str
    """``verify``, ``draft``, ``draft extend``, ``rest``."""
    ms: float
    share: float
    """Of the round."""
    steps: float | None


@dataclass(frozen=True)
class Option:
    """A setting of the same draft and what it would give. Only chains (topk 1) are reckoned."""

    steps: int
    topk: int
    draft_tokens: int
    accept_length: float
    round_ms: float
    tokens_per_s: float
    """Per request."""
    speed_up: float | None
    status: Literal["measured", "shorter", "extrapolated"]
    """``shorter`` than measured: its rates were measured, its verify cost is that of more tokens,
    an upper limit. ``extrapolated``: rates of the last position repeated."""


@dataclass(frozen=True)
class BatchEconomics:
    """One batch size."""

    batch_size: int
    setting: Setting
    basis: Basis
    rounds: int
    """Request rounds at this batch size."""
    accept_length: float
    round_ms: float
    draft_step_ms: float | None
    """One draft forward: a round runs one less than it has steps (the first draft comes from the
    draft extend of the round before; ``draft_forward`` of SGLang's EAGLE workers)."""
    parts: tuple[Part, ...]
    tokens_per_s: float
    """Per request, at this accept length and round time."""
    plain_ms: float | None
    plain_tokens_per_s: float | None
    break_even: float | None
    """Accept length at which a round costs what it gives."""
    least_break_even: float | None
    """Without a plain step: round / verify. A plain step costs at most a verify forward, so the
    break-even length is this or more."""
    speed_up: float | None
    speed_up_interval: Interval | None
    """From the interval of the accept length (rounds as independent); of the cost there is none."""
    predicted_speed_up: float | None
    options: tuple[Option, ...]

    @property
    def best(self) -> Option | None:
        """The fastest option that was measured or is shorter than what was measured."""
        known = [o for o in self.options if o.status != "extrapolated"]
        return max(known, key=lambda o: o.tokens_per_s, default=None)

    @property
    def best_extrapolated(self) -> Option | None:
        """The fastest option of all, when it is one beyond what was measured."""
        best = max(self.options, key=lambda o: o.tokens_per_s, default=None)
        return best if best is not None and best.status == "extrapolated" else None


@dataclass(frozen=True)
class Economics:
    """All batch sizes with a known round time, the one with most rounds first."""

    batches: tuple[BatchEconomics, ...]
    clock: str
    """``device``, ``host``, or empty without phase times."""
    overlapped: bool
    not_timed: int
    plain_source: str
    """Empty when no plain step is known."""
    extend_ms: Mapping[int, float]
    """Prefill of the target, by batch size, where timed."""

    @property
    def main(self) -> BatchEconomics | None:
        return self.batches[0] if self.batches else None


def economics(
    costs: Costs,
    by_batch: Mapping[int, Mapping[int, int]],
    seen: Acceptance,
    *,
    setting: Setting,
    plain: Plain | None = None,
    predicted_length: float | None = None,
) -> Economics:
    """Costs and gains per batch size.

    by_batch: batch size -> tokens of a round, bonus included -> rounds. setting: in force where no
    phase times say it. predicted_length: accept length by the trainer's accuracies.
    """
    own = plain_steps(costs)
    if plain is None and own:
        plain = Plain(own, "phases", "decode phases of this trace")
    batches = []
    for size, lengths in by_batch.items():
        if any(lengths.values()):
            made = _batch(costs, size, lengths, seen, setting, plain)
            if made is not None:
                batches.append(_with_prediction(made, predicted_length))
    batches.sort(key=lambda b: (-b.rounds, b.batch_size))
    prefills = {size: costs.of("prefill", size) for size in costs.batch_sizes()}
    return Economics(
        batches=tuple(batches),
        clock="/".join(sorted(costs.clocks)),
        overlapped=costs.overlapped,
        not_timed=costs.not_timed,
        plain_source=plain.source if plain is not None else "",
        extend_ms={size: c.typical_ms for size, c in prefills.items() if c is not None},
    )


def _batch(
    costs: Costs,
    size: int,
    lengths: Mapping[int, int],
    seen: Acceptance,
    setting: Setting,
    plain: Plain | None,
) -> BatchEconomics | None:
    length, interval = mean_interval(dict(lengths), 1, max(len(seen.histogram), *lengths))
    verify = costs.of("verify", size)
    if verify is not None:
        setting = verify.setting
    worked = {
        name: cost.typical_ms
        for name, phase in (
            ("verify", "verify"),
            ("draft", "draft"),
            ("draft extend", "draft_extend"),
        )
        if (cost := costs.of(phase, size, setting)) is not None
    }
    spacing = costs.spacing.get(size)
    gap_ms = spacing.median_ms if spacing is not None and spacing.count >= LEAST_GAPS else None
    work_ms = sum(worked.values()) if "verify" in worked else None
    basis: Basis = "spacing"
    if work_ms is not None and (gap_ms is None or (plain is not None and plain.basis == "phases")):
        basis = "phases"
    round_ms = work_ms if basis == "phases" else gap_ms
    if not round_ms:
        return None
    plain_ms = plain.step_ms(size) if plain is not None else None
    parts = list(worked.items()) if work_ms is not None else []
    if basis == "spacing" and work_ms is not None and work_ms < round_ms:
        parts.append(("rest", round_ms - work_ms))
    steps = setting[0]
    draft_ms = worked.get("draft")
    draft_step_ms = draft_ms / (steps - 1) if draft_ms is not None and steps > 1 else None
    return BatchEconomics(
        batch_size=size,
        setting=setting,
        basis=basis,
        rounds=sum(lengths.values()),
        accept_length=length,
        round_ms=round_ms,
        draft_step_ms=draft_step_ms,
        parts=tuple(
            Part(name, ms, ms / round_ms, ms / plain_ms if plain_ms else None) for name, ms in parts
        ),
        tokens_per_s=1000 * length / round_ms,
        plain_ms=plain_ms,
        plain_tokens_per_s=1000 / plain_ms if plain_ms else None,
        break_even=round_ms / plain_ms if plain_ms else None,
        least_break_even=None if plain_ms or work_ms is None else work_ms / worked["verify"],
        speed_up=length * plain_ms / round_ms if plain_ms else None,
        speed_up_interval=_scaled(interval, plain_ms / round_ms) if plain_ms else None,
        predicted_speed_up=None,
        options=_options(seen, setting, length, round_ms, draft_step_ms, plain_ms),
    )


def _with_prediction(made: BatchEconomics, predicted_length: float | None) -> BatchEconomics:
    if predicted_length is None or made.plain_ms is None:
        return made
    return replace(made, predicted_speed_up=predicted_length * made.plain_ms / made.round_ms)


def _scaled(interval: Interval | None, factor: float) -> Interval | None:
    return None if interval is None else Interval(interval.low * factor, interval.high * factor)


def _options(
    seen: Acceptance,
    setting: Setting,
    length: float,
    round_ms: float,
    draft_step_ms: float | None,
    plain_ms: float | None,
) -> tuple[Option, ...]:
    steps, topk, draft_tokens = setting

    def option(n: int, its_length: float, its_ms: float, status: str) -> Option:
        return Option(
            steps=n,
            topk=topk,
            draft_tokens=draft_tokens if n == steps else n + 1,
            accept_length=its_length,
            round_ms=its_ms,
            tokens_per_s=1000 * its_length / its_ms,
            speed_up=its_length * plain_ms / its_ms if plain_ms else None,
            status=status,  # type: ignore[arg-type]
        )

    made = [option(steps, length, round_ms, "measured")]
    rates = [rate.share for rate in seen.conditional]
    # A tree's rates are not those of a chain, and without a draft step's cost nothing can be moved.
    if topk != 1 or draft_step_ms is None or len(rates) < steps or None in rates[:steps]:
        return tuple(made)
    curve = [float(rate or 0.0) for rate in rates[:steps]]
    full = _chain_length(curve)
    for n in [*range(1, steps), *range(steps + 1, steps + 1 + BEYOND)]:
        its_curve = curve[:n] + [curve[-1]] * (n - steps)
        # Scaled, so that the batch size's own length stays where it is.
        its_length = 1 + (_chain_length(its_curve) - 1) * _ratio(length - 1, full - 1)
        its_ms = round_ms + (n - steps) * draft_step_ms
        if its_ms > 0:
            made.append(option(n, its_length, its_ms, "shorter" if n < steps else "extrapolated"))
    return tuple(sorted(made, key=lambda o: o.steps))


def _chain_length(conditional: list[float]) -> float:
    """1 + p0 + p0 p1 + ..."""
    total, product = 1.0, 1.0
    for rate in conditional:
        product *= rate
        total += product
    return total


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else 1.0
