"""Everything known about a run's acceptance beyond its curve, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.analysis.acceptance import Acceptance, from_outcomes
from sglang_eagle3_probe.analysis.anatomy import Anatomy, anatomy
from sglang_eagle3_probe.analysis.economics import Economics, Plain, economics
from sglang_eagle3_probe.analysis.phase_costs import Setting
from sglang_eagle3_probe.analysis.prediction import Comparison, Prediction, compare
from sglang_eagle3_probe.analysis.reference_bank import Found, look_up
from sglang_eagle3_probe.analysis.slices import GREEDY, Slices, by_dimension, by_name
from sglang_eagle3_probe.analysis.timeline import Moment
from sglang_eagle3_probe.analysis.traffic_counts import TrafficCounts
from sglang_eagle3_probe.trace.rounds import Outcome


@dataclass(frozen=True)
class Given:
    """What the user knows beside the trace."""

    predicted: Prediction | None = None
    plain: Plain | None = None


@dataclass(frozen=True)
class Understanding:
    """Why the acceptance is what it is, and what it is worth."""

    setting: Setting | None
    """(steps, topk, draft tokens) in force; ``None`` when nothing says."""
    anatomy: Anatomy
    slices: tuple[Slices, ...]
    comparison: Comparison | None
    """With the trainer's accuracies, where they were given."""
    economics: Economics
    references: Found | None
    timeline: tuple[Moment, ...] = ()
    """Accept length over wall-clock time, oldest first."""

    def slices_of(self, name: str) -> Slices | None:
        """One dimension by name; ``None`` when it was not recorded."""
        return next((slices for slices in self.slices if slices.name == name), None)


def understand(
    counts: TrafficCounts,
    seen: Acceptance,
    *,
    given: Given,
    in_force: Mapping[str, object],
    topk_seen: Mapping[int, int],
    target_path: str,
    target_architecture: str,
    ranks: Sequence[tuple[str, Mapping[str, Mapping[Outcome, int]]]] = (),
) -> Understanding:
    """Put it together.

    in_force: SGLang's arguments. topk_seen: topk -> rounds. ranks: (``dp_rank`` or ``tp_rank``,
    label -> outcomes) for deployments with several.
    """
    setting = setting_of(in_force, seen, topk_seen)
    comparison = None
    if given.predicted is not None:
        greedy = counts.slices.outcomes(lambda cell: GREEDY.bucket(cell) == 1)
        sampled = counts.slices.outcomes(lambda cell: GREEDY.bucket(cell) == 2)
        told = sum(greedy.values()) + sum(sampled.values())
        comparison = compare(
            given.predicted,
            seen,
            greedy=from_outcomes(greedy, requests=0),
            sampling_share=sum(sampled.values()) / told if told else None,
            tree=any(topk > 1 for topk in topk_seen),
        )
    slices = by_dimension(counts.slices)
    for name, groups in ranks:
        if len(groups) > 1:
            title = "data-parallel rank" if name == "dp_rank" else "tensor-parallel rank"
            slices.append(by_name(name, title, groups))
    predicted_length = None
    if given.predicted is not None and setting is not None:
        predicted_length = given.predicted.expected.length(setting[0])
    return Understanding(
        setting=setting,
        anatomy=anatomy(counts.refusals, counts.slices.outcomes()),
        slices=tuple(slices),
        comparison=comparison,
        economics=economics(
            counts.costs,
            counts.slices.by_batch,
            seen,
            setting=setting or (0, 0, 0),
            plain=given.plain,
            predicted_length=predicted_length,
        ),
        references=_references(setting, seen, target_path, target_architecture),
        timeline=counts.time.moments(),
    )


def setting_of(
    in_force: Mapping[str, object], seen: Acceptance, topk_seen: Mapping[int, int]
) -> Setting | None:
    """The numbers of speculation: those in force, else those that the rounds show."""
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    numbers = [in_force.get(name) for name in names]
    if all(isinstance(n, int) and n > 0 for n in numbers):
        steps, topk, tokens = (int(str(n)) for n in numbers)
        return (steps, topk, tokens)
    if len(seen.steps) == 1 and set(topk_seen) == {1}:
        steps = next(iter(seen.steps))
        return (steps, 1, steps + 1)
    return None


def _references(
    setting: Setting | None, seen: Acceptance, path: str, architecture: str
) -> Found | None:
    # With adaptive steps a run has no single setting to be looked up.
    if setting is None or (seen.steps and set(seen.steps) != {setting[0]}):
        return None
    steps, topk, tokens = setting
    return look_up(path, architecture, steps=steps, topk=topk, draft_tokens=tokens)
