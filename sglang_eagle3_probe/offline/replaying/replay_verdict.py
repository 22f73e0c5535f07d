"""What a replay means: one sentence, what it rests on, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.analysis.intervals_of_differences import share_difference
from sglang_eagle3_probe.analysis.prediction import LARGE
from sglang_eagle3_probe.offline.replaying.outcomes import CERTAIN, Outcome, difference
from sglang_eagle3_probe.offline.replaying.replay import Replay
from sglang_eagle3_probe.offline.replaying.variations import IDS_FIX, SHIFTED_IDS

Kind = Literal["engine", "states", "weak", "healthy"]
DIFFERENT = 0.02
"""An engine's tokens differ when surely more than this share of them do, rounding left out."""
LEAST_GAIN = 0.02
"""Tokens of accept length. Less is not worth a change."""
WEAK = 0.4
"""A draft whose first token is right less often than this gains little, whatever else is right."""
HANDED = 0.9
"""Ids of a prompt are those of a place when so many of them are; a chunk's last may be others."""
STATE_ERROR = 8.0
"""Recurrent states differ when their relative error is above so many roundings of the engine."""


@dataclass(frozen=True)
class Verdict:
    """``kind`` and ``sentence``; ``details``: what it rests on; ``fix``: empty when healthy."""

    kind: Kind
    sentence: str
    details: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True)
class Gain:
    """Accept length of a variation minus that of the draft as configured, on the same rows."""

    outcome: Outcome
    mean: float
    error: float

    @property
    def certain(self) -> bool:
        return self.mean > LEAST_GAIN and self.mean > CERTAIN * self.error

    @property
    def certain_loss(self) -> bool:
        return -self.mean > CERTAIN * self.error and self.mean < 0


def gains(replay: Replay) -> list[Gain]:
    """Of every variation that ran to the end, largest first."""
    found = []
    for outcome in replay.outcomes[1:]:
        apart = None if outcome.set_aside else difference(outcome, replay.base)
        if apart is not None:
            found.append(Gain(outcome, apart.mean, apart.error))
    return sorted(found, key=lambda gain: -gain.mean)


@dataclass(frozen=True)
class FirstDifference:
    """Where the engine first departs from the draft as configured.

    ``step``: counted from 0; -1: the ids handed over. ``tensor``: in words. ``size``: what differs
    how much, in words. ``meaning``: what lies between this and what still agrees.
    """

    step: int
    tensor: str
    size: str
    meaning: str


def first_difference(replay: Replay) -> FirstDifference | None:
    """The first step and tensor in which the engine and the replay differ; None: nowhere."""
    if replay.handed is not None and replay.handed[0] != 0:
        shift, share = replay.handed
        return FirstDifference(
            -1,
            "ids handed to the draft",
            f"{share.hits} of {share.seen} are those {shift:+d} places from the next token's",
            "the engine gives the draft other tokens than the ones after each row",
        )
    limit = _state_limit(replay.engine_dtype)
    for step, agreement in enumerate(replay.whole.agreement):
        tokens = agreement.different / agreement.compared > DIFFERENT
        error = replay.hidden[step] if step < len(replay.hidden) else None
        if error is not None and error > limit:
            how = f"median relative error {error:.2g}, rounding explains up to {limit:.2g}"
            if not tokens:
                return FirstDifference(
                    step, "recurrent state", how,
                    "the token is the same, so only what is handed on differs: norm_output, or the "
                    "state is taken elsewhere",
                )  # fmt: skip
            return FirstDifference(step, "recurrent state", how, _before(step))
        if tokens:
            how = (
                f"{agreement.different} of {agreement.compared} tokens differ by more than rounding"
            )
            if error is not None:
                meaning = "the state behind it agrees: head, last norm, or vocabulary map"
            else:
                meaning = _before(step) + ", head, last norm, or vocabulary map"
            return FirstDifference(step, "draft token", how, meaning)
    return None


def _before(step: int) -> str:
    if step == 0:
        return (
            "something in the first forward: the states, fc and its norms, embedding, layer norms, "
            "rotary angles, or what stands in the draft's KV cache"
        )
    return (
        "the first step agrees, so it is what the draft hands itself: norm_output, positions and "
        "rotary angles, or its own KV of earlier steps"
    )


def _state_limit(dtype: str) -> float:
    from sglang_eagle3_probe.offline.replaying.replay_play import ROUNDING

    return max(1e-4, STATE_ERROR * ROUNDING.get(dtype, ROUNDING["bfloat16"]))


def verdict(replay: Replay) -> Verdict:
    """The one sentence that comes first."""
    unrun = _fc_not_run(replay)
    if unrun is not None:
        return unrun
    different = replay.whole.different
    if (different.seen and different.interval.low > DIFFERENT) or _handed_wrong(replay):
        return _engine(replay)
    better = [gain for gain in gains(replay) if gain.certain]
    named = _trained_theta(replay)
    if better or named is not None:
        return _states(replay, named if named is not None else better[0])
    return _as_it_is(replay)


def _handed_wrong(replay: Replay) -> bool:
    return replay.handed is not None and replay.handed[0] != 0 and replay.handed[1].seen >= 8


def _handed_shift(replay: Replay) -> int | None:
    """By how many places the ids beside a prompt's rows are shifted; None: they are not, surely."""
    if replay.handed is None or not _handed_wrong(replay):
        return None
    shift, share = replay.handed
    return shift if (share.share or 0.0) >= HANDED else None


def _fc_not_run(replay: Replay) -> Verdict | None:
    if not replay.slots or replay.state_width != replay.draft_width:
        return None
    if replay.slots == 1:
        return None
    return Verdict(
        "engine",
        f"The engine does not run fc: it hands the draft states of width {replay.state_width}, "
        f"which pass unchanged, and not {replay.slots} aux slots.",
        (f"fc of the draft takes {replay.slots} slots of states.",),
        "serve with --speculative-algorithm EAGLE3, and without "
        '"use_aux_hidden_state": false in the draft\'s eagle_config',
    )


def _engine(replay: Replay) -> Verdict:
    details = []
    first = first_difference(replay)
    if first is not None:
        where = "before the first step" if first.step < 0 else f"at step {first.step}"
        details.append(f"First difference {where}: {first.tensor}; {first.size}. {first.meaning}.")
    explained = _explains(replay)
    shift = _handed_shift(replay)
    if explained is None and shift is not None:
        return Verdict(
            "engine",
            f"The engine hands the draft {SHIFTED_IDS[shift]} beside each row of a prompt, not the "
            "token after it.",
            (*details, "No variation drafts its tokens: rounds may read other ids than prompts."),
            IDS_FIX,
        )
    if explained is None:
        return Verdict(
            "engine",
            "The engine drafts other tokens than these weights give on these states, and none of "
            "the variations drafts them either.",
            tuple(details),
            "check that the server ran this very draft (its digest), and with which "
            "--json-model-override-args; then report the first difference",
        )
    seen = explained.different
    details.append(
        f"{seen.seen - seen.hits} of {seen.seen} of its tokens are those of the variation "
        f"'{explained.variation.name}'."
    )
    return Verdict(
        "engine",
        f"The engine {explained.variation.engine}.",
        tuple(details),
        _engine_fix(explained),
    )


def _explains(replay: Replay) -> Outcome | None:
    """The variation that drafts what the engine drafted, if one does."""
    ran = [o for o in replay.outcomes[1:] if o.different.seen and not o.failed and not o.set_aside]
    base = replay.base.different
    best = min(ran, key=lambda o: o.different.hits, default=None)
    if best is None or (best.different.share or 0.0) > DIFFERENT:
        return None
    return best if best.different.interval.high < base.interval.low else None


def _engine_fix(explained: Outcome) -> str:
    loss = (
        ""
        if not explained.variation.fix
        else f"if that is right for the draft: {explained.variation.fix}; else "
    )
    name = explained.variation.name
    if name.startswith("ids shifted"):
        return explained.variation.fix
    if name == "fc skipped":
        return explained.variation.fix
    if name in ("map read as target ids", "map not used"):
        return (
            "SGLang adds the row's number to d2t (hot_token_id); look for a patch or an option "
            "such as --speculative-token-map that replaces it"
        )
    return loss + "look for what the server was started with that differs from the draft's files"


def _trained_theta(replay: Replay) -> Gain | None:
    """The variation with the theta that the trainer's notes name, unless it is surely worse."""
    if replay.trained_theta is None or replay.trained_theta == replay.theta:
        return None
    for gain in gains(replay):
        if gain.outcome.variation.changes.get("theta") == replay.trained_theta:
            return None if gain.certain_loss else gain
    return None


def _states(replay: Replay, best: Gain) -> Verdict:
    variation = best.outcome.variation
    base, length = replay.base.length or 0.0, best.outcome.length or 0.0
    details = [
        f"As configured its chains reach accept length {base:.2f} on these states, with "
        f"'{variation.name}' {length:.2f} (gain {best.mean:+.2f}, standard error {best.error:.2f}; "
        f"{len(replay.base.leading)} rows)."
    ]
    if replay.trained_theta is not None and variation.changes.get("theta") == replay.trained_theta:
        details.append(f"trainer_accuracy.json names theta {replay.trained_theta:g}.")
    details += _boundaries(replay)
    details += _engine_agrees(replay)
    return Verdict(
        "states", f"The draft was trained {variation.trained}.", tuple(details), variation.fix
    )


def _boundaries(replay: Replay) -> list[str]:
    trained = replay.trained_boundaries
    if trained is None or not replay.boundaries or trained == replay.boundaries:
        return []
    return [
        f"Its trainer names boundaries {', '.join(map(str, trained))}; captured were "
        f"{', '.join(map(str, replay.boundaries))}."
    ]


def _engine_agrees(replay: Replay) -> list[str]:
    seen = replay.whole.different
    if not seen.seen:
        return ["What the engine drafted was not captured, so it was not compared."]
    ties = sum(a.ties for a in replay.whole.agreement)
    same = f"{seen.seen - seen.hits} of {seen.seen} draft tokens agree"
    text = f"The engine computes what the files say: {same}"
    return [f"{text}, {ties} of them ties within rounding." if ties else f"{text}."]


def trainer_gaps(replay: Replay) -> list[tuple[float, float, Interval]]:
    """The trainer's accuracy, its lead over the one measured, and that lead's interval; a step."""
    notes = replay.trainer
    if notes is None or notes.accuracy is None:
        return []
    found = []
    for promised, seen in zip(notes.accuracy, replay.whole.accuracy, strict=False):
        if not seen.seen:
            break
        hits = promised if notes.positions is None else promised * notes.positions
        gap, interval = share_difference(hits, notes.positions, seen.hits, seen.seen)
        found.append((promised, gap, interval))
    return found


def _as_it_is(replay: Replay) -> Verdict:
    details = _engine_agrees(replay)
    first = replay.whole.accuracy[0] if replay.whole.accuracy else None
    gaps = trainer_gaps(replay)
    moved = _boundaries(replay)
    if first is None or not first.seen:
        return Verdict("healthy", "The engine computes what the files say.", tuple(details))
    share = first.hits / first.seen
    if gaps and gaps[0][2].low > LARGE:
        details.append(
            f"Its trainer reports {gaps[0][0]:.3f} for the first token, here it is {share:.3f} "
            f"({first.seen} positions)."
        )
        return Verdict(
            "states",
            "The states are not what the draft was trained on"
            + (
                ": other layers are captured."
                if moved
                else ", or these texts are unlike its training."
            ),
            (*details, *moved),
            "capture all layers of some requests (--probe-all-layers 16) and run "
            "sglang-eagle3-probe infer-layers",
        )
    if share < WEAK:
        details.append(
            "No variation makes it better, and its trainer's accuracy is "
            + (f"{gaps[0][0]:.3f} too." if gaps else "not known.")
        )
        return Verdict(
            "weak",
            f"The draft is weak here: its first token is right at {share:.3f} of the positions.",
            (*details, *moved),
            "train it on such texts, answered by this target; or, if its trainer reports more, run "
            "sglang-eagle3-probe infer-layers on a capture of all layers",
        )
    if gaps:
        details.append(
            f"Its trainer reports {gaps[0][0]:.3f} for the first token, here it is {share:.3f}."
        )
    return Verdict(
        "healthy",
        f"Healthy: the engine and these weights agree, and the first token is right at {share:.3f} "
        "of the positions."
        if replay.whole.different.seen
        else f"Healthy as far as captured: the first token is right at {share:.3f} of the rows.",
        tuple(details),
    )
