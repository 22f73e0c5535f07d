"""What the rules look at: the newest of every kind of record, per rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sglang_eagle3_probe.analysis.acceptance import Acceptance, from_outcomes
from sglang_eagle3_probe.analysis.probe_cost import Cost, probe_cost
from sglang_eagle3_probe.analysis.rank_values import SiteComparison, compare
from sglang_eagle3_probe.analysis.slot_values import SiteValues, pool
from sglang_eagle3_probe.analysis.traffic_counts import LeadTraffic, TrafficCounts
from sglang_eagle3_probe.analysis.understanding import Given, Understanding, understand
from sglang_eagle3_probe.trace.capture_records import Capture
from sglang_eagle3_probe.trace.cost_records import ProbeCost
from sglang_eagle3_probe.trace.reader import Problem, ProcessTrace, Trace, read
from sglang_eagle3_probe.trace.records import (
    Arguments,
    AuxStates,
    DraftForward,
    Fault,
    Header,
    LayerIds,
    Losses,
    Ranks,
    Seams,
    SlotStats,
    StatsCoverage,
    TargetExtend,
    VocabMap,
    Weights,
)
from sglang_eagle3_probe.trace.rounds import RoundCounts
from sglang_eagle3_probe.trace.static_records import StaticFindings
from sglang_eagle3_probe.trace.traffic import TRAFFIC_TYPES, read_traffic


@dataclass
class RankEvidence:
    """One process's newest records."""

    label: str
    """``scheduler tp0``."""
    files: list[Path]
    header: Header | None = None
    seams: Seams | None = None
    arguments: Arguments | None = None
    layer_ids: LayerIds | None = None
    aux: list[AuxStates] = field(default_factory=list)
    """Newest per shape class."""
    target_extends: list[TargetExtend] = field(default_factory=list)
    """Newest per generation and capture mode."""
    drafts: list[DraftForward] = field(default_factory=list)
    """Newest per class of draft forward."""
    vocab_map: VocabMap | None = None
    weights: Weights | None = None
    static_findings: StaticFindings | None = None
    """What the static rules said when the draft was loaded; by one process of each host."""
    values: dict[str, SiteValues] = field(default_factory=dict)
    """Level ``stats``: site -> its windows pooled, in the order values flow."""
    stats_coverage: StatsCoverage | None = None
    cost: Cost | None = None
    """What the probe took, by its own clocks; ``None`` before the first few seconds of rounds."""
    captures: list[Capture] = field(default_factory=list)
    """Level ``capture``: requests whose states were written to files."""
    faults: list[Fault] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    problems: list[Problem] = field(default_factory=list)
    ended_in_order: bool = False
    rounds: RoundCounts = field(default_factory=RoundCounts)
    traffic: TrafficCounts | None = None
    """Counted while the trace was read; ``None`` where the files must be read again for it."""

    @property
    def runs_model(self) -> bool:
        return self.header is None or self.header.role == "scheduler"

    @property
    def algorithm(self) -> str:
        """The speculative algorithm in force, upper case; empty when not recorded."""
        if self.arguments is None:
            return ""
        for book in (self.arguments.in_force, self.arguments.asked):
            value = book.get("speculative_algorithm")
            if value:
                # SGLang keeps an enum in places; its name is the last word.
                return str(value).rsplit(".", 1)[-1].upper()
        return ""

    @property
    def measures_values(self) -> bool:
        """The level in force includes statistics of values."""
        return self.header is not None and self.header.level in ("stats", "capture")

    @property
    def served_output_ids(self) -> list[int] | None:
        """In concatenation order."""
        if self.layer_ids is None:
            return None
        return [slot.output_id for slot in self.layer_ids.slots]

    @property
    def fc_in_features(self) -> int | None:
        for draft in self.drafts:
            if draft.fc_in_features is not None:
                return draft.fc_in_features
        return None

    @property
    def head_rows(self) -> int | None:
        """Rows of the draft's lm_head, by map record or by arguments."""
        if self.vocab_map is not None and self.vocab_map.head_rows is not None:
            return self.vocab_map.head_rows
        return self.arguments.draft_vocab_size if self.arguments is not None else None

    @property
    def target_vocab_size(self) -> int | None:
        if self.vocab_map is not None and self.vocab_map.target_vocab_size is not None:
            return self.vocab_map.target_vocab_size
        return self.arguments.target_vocab_size if self.arguments is not None else None


@dataclass
class Evidence:
    """All ranks of one server run."""

    path: Path
    ranks: list[RankEvidence]
    acceptance: Acceptance
    rounds: RoundCounts
    """Of one rank per data-parallel group: tensor-parallel ranks see the same rounds."""
    rounds_from: list[str]
    """Labels of those ranks."""
    understood: Understanding
    """Causes of refusals, slices, prediction, economics: of the same rounds."""
    rank_comparisons: list[SiteComparison] = field(default_factory=list)
    """Level ``stats``: values of the same forward on the ranks of each data-parallel group."""
    older_runs: int = 0
    """Runs in the same directory that are not looked at."""

    @property
    def models(self) -> list[RankEvidence]:
        """Ranks that run the model."""
        return [rank for rank in self.ranks if rank.runs_model]


def read_evidence(path: Path) -> Trace:
    """Read a trace such that ``collect`` need not read it again, nor hold what comes by the
    million.

    Raises:
        TraceError: nothing there can be read as a trace.
    """
    return read(path, folds=[LeadTraffic], leave_out=TRAFFIC_TYPES)


def collect(trace: Trace, given: Given | None = None) -> Evidence:
    """Evidence of the newest run in a trace. given: what the user knows beside it."""
    runs = trace.runs()
    newest = runs[-1]
    ranks = [_of_process(process) for process in newest.processes]
    chosen = _one_rank_per_group(ranks)
    rounds = _merged(chosen)
    counts = _count_traffic(chosen)
    # By the positions really proposed: a budget of tokens smaller than the steps cuts them.
    seen = from_outcomes(counts.slices.outcomes(), requests=len(rounds.by_request))
    return Evidence(
        path=trace.path,
        ranks=ranks,
        acceptance=seen,
        rounds=rounds,
        rounds_from=[rank.label for rank in chosen],
        understood=_understand(ranks, chosen, seen, rounds, counts, given or Given()),
        rank_comparisons=_compare_values(ranks),
        older_runs=len(runs) - 1,
    )


def rounds_of(trace: Trace) -> RoundCounts:
    """Verify rounds of the newest run, each counted once although several ranks recorded it."""
    processes = trace.newest_run().processes
    return _merged(
        _one_rank_per_group(
            [RankEvidence(p.label, p.files, header=p.header, rounds=p.rounds) for p in processes]
        )
    )


def _merged(ranks: list[RankEvidence]) -> RoundCounts:
    rounds = RoundCounts()
    for rank in ranks:
        rounds.merge(rank.rounds)
    return rounds


def _of_process(process: ProcessTrace) -> RankEvidence:
    traffic = process.fold(LeadTraffic)
    arguments = process.newest(Arguments)
    return RankEvidence(
        label=process.label,
        files=process.files,
        header=process.header,
        seams=process.newest(Seams),
        arguments=arguments,
        layer_ids=process.newest(LayerIds),
        aux=list(
            {
                (
                    r.phase,
                    r.forward_mode,
                    r.capture_hidden_mode,
                    r.count,
                    tuple(r.widths),
                    r.in_graph_capture,
                ): r
                for r in process.of(AuxStates)
            }.values()
        ),
        target_extends=list(
            {
                (r.worker_generation, r.capture_hidden_mode): r for r in process.of(TargetExtend)
            }.values()
        ),
        drafts=list(
            {
                (r.phase, r.model_class, r.width_in, r.fc, r.in_graph_capture): r
                for r in process.of(DraftForward)
            }.values()
        ),
        vocab_map=process.newest(VocabMap),
        weights=process.newest(Weights),
        static_findings=process.newest(StaticFindings),
        values=pool(process.of(SlotStats)),
        stats_coverage=process.newest(StatsCoverage),
        cost=probe_cost(process.of(ProbeCost)),
        captures=process.of(Capture),
        faults=process.of(Fault),
        losses=process.losses,
        problems=process.problems,
        ended_in_order=process.ended_in_order,
        rounds=process.rounds,
        traffic=None if traffic is None or traffic.passed_over else traffic,
    )


def _one_rank_per_group(ranks: list[RankEvidence]) -> list[RankEvidence]:
    best: dict[int, RankEvidence] = {}
    for rank in ranks:
        if not rank.rounds.total:
            continue
        group = (rank.header.ranks.dp_rank if rank.header else None) or 0
        before = best.get(group)
        if before is None or _tp_rank(rank) < _tp_rank(before):
            best[group] = rank
    return [best[group] for group in sorted(best)]


def _count_traffic(ranks: list[RankEvidence]) -> TrafficCounts:
    counts = TrafficCounts()
    for rank in ranks:
        own = rank.traffic
        if own is None:
            own = TrafficCounts()
            started_s = rank.header.monotonic_s if rank.header is not None else None
            own.add_all(read_traffic(rank.files), started_s=started_s)
        counts.merge(own)
    return counts


def _understand(
    ranks: list[RankEvidence],
    chosen: list[RankEvidence],
    seen: Acceptance,
    rounds: RoundCounts,
    counts: TrafficCounts,
    given: Given,
) -> Understanding:
    arguments = next((r.arguments for r in chosen or ranks if r.arguments is not None), None)
    with_rounds = [rank for rank in ranks if rank.rounds.total]
    return understand(
        counts,
        seen,
        given=given,
        in_force=arguments.in_force if arguments is not None else {},
        topk_seen=rounds.topk,
        target_path=arguments.target_path if arguments is not None else "",
        target_architecture=arguments.target_architecture if arguments is not None else "",
        ranks=[
            ("dp_rank", {rank.label: rank.rounds.outcomes for rank in chosen}),
            # Within one data-parallel group; they run the same rounds and must agree.
            (
                "tp_rank",
                {r.label: r.rounds.outcomes for r in with_rounds} if len(chosen) == 1 else {},
            ),
        ],
    )


def _compare_values(ranks: list[RankEvidence]) -> list[SiteComparison]:
    groups: dict[tuple[int, int], list[RankEvidence]] = {}
    for rank in ranks:
        if rank.values:
            place = rank.header.ranks if rank.header is not None else Ranks()
            groups.setdefault((place.dp_rank or 0, place.pp_rank or 0), []).append(rank)
    return [
        comparison
        for key in sorted(groups)
        for comparison in compare([(rank.label, rank.values) for rank in groups[key]])
    ]


def _tp_rank(rank: RankEvidence) -> int:
    return (rank.header.ranks.tp_rank if rank.header else None) or 0
