"""The wiring of one rank as a picture needs it: blocks in order, and the chain behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_eagle3_probe.report.facts import fc_is_right, layer_name
from sglang_eagle3_probe.report.verdict import Report
from sglang_eagle3_probe.rules.evidence import RankEvidence

State = Literal["same", "differs", "unknown"]
Mark = Literal["ok", "bad", "unknown", ""]


@dataclass(frozen=True)
class Block:
    """One block of the concatenation: what it is served and what it was trained on."""

    place: int
    served: int | None
    """Boundary h; ``None`` when the draft was trained on a slot that is not served."""
    trained: int | None
    """Boundary h, where known."""
    state: State
    width: int | None

    @property
    def words(self) -> str:
        if self.served is None:
            return "not served"
        return f"h {self.served} \u00b7 {layer_name(self.served)}"

    @property
    def trained_words(self) -> str:
        if self.state == "same":
            return "as trained"
        if self.state == "unknown":
            return "training not known"
        if self.trained is None:
            return "no such slot in training"
        return f"trained: h {self.trained} \u00b7 {layer_name(self.trained)}"


@dataclass(frozen=True)
class Stage:
    """One box of the chain behind the concatenation."""

    title: str
    lines: tuple[tuple[Mark, str], ...]


def blocks(rank: RankEvidence) -> list[Block]:
    """In concatenation order; slots that are only trained or only served included."""
    ids = rank.layer_ids
    if ids is None:
        return []
    trained = ids.trained_output_ids
    widths = next((a.widths for a in rank.aux if len(a.widths) == len(ids.slots)), [])
    result = []
    for place in range(max(len(ids.slots), len(trained or []))):
        served = ids.slots[place].boundary if place < len(ids.slots) else None
        wanted = trained[place] + 1 if trained is not None and place < len(trained) else None
        state: State = "unknown" if trained is None else "same" if served == wanted else "differs"
        width = widths[place] if place < len(widths) else None
        result.append(Block(place, served, wanted, state, width))
    return result


def stages(rank: RankEvidence, report: Report) -> list[Stage]:
    """``fc``, draft, vocabulary map, verification."""
    return [_fc(rank), _draft(rank), _map(rank), _verify(report)]


def concatenated(rank: RankEvidence) -> str:
    """``3 x 192 = 576``; empty when no aux states were seen."""
    for aux in rank.aux:
        if aux.widths:
            total = sum(aux.widths)
            if len(set(aux.widths)) == 1:
                return f"{len(aux.widths)} \u00d7 {aux.widths[0]} = {total}"
            return f"{' + '.join(map(str, aux.widths))} = {total}"
    return ""


def _fc(rank: RankEvidence) -> Stage:
    lines: list[tuple[Mark, str]] = []
    taken = next((d for d in rank.drafts if d.fc_in_features is not None), None)
    if taken is not None:
        lines.append(("", f"{taken.fc_in_features} \u2192 {taken.fc_out_features}"))
    for phase, fc, right in dict.fromkeys((d.phase, d.fc, fc_is_right(d)) for d in rank.drafts):
        mark: Mark = "" if right is None else "ok" if right else "bad"
        lines.append((mark, f"{fc} in {phase}"))
    return Stage("fc", tuple(lines) or (("unknown", "no draft forward recorded"),))


def _draft(rank: RankEvidence) -> Stage:
    name = rank.drafts[0].model_class if rank.drafts else ""
    if not name and rank.arguments is not None:
        name = rank.arguments.draft_architecture
    lines: list[tuple[Mark, str]] = [("", name or "not recorded")]
    weights = rank.weights
    if weights is not None:
        left, unfilled = len(weights.not_taken), len(weights.not_filled)
        lines.append(("bad", f"{left} tensors left over") if left else ("ok", "every tensor taken"))
        if unfilled:
            lines.append(("bad", f"{unfilled} parameters unfilled"))
    return Stage("draft", tuple(lines))


def _map(rank: RankEvidence) -> Stage:
    found = rank.vocab_map
    if found is None:
        return Stage("hot_token_id", (("unknown", "not recorded"),))
    if not found.present and not found.in_force:
        return Stage("hot_token_id", (("", "no map: target ids"),))
    lines: list[tuple[Mark, str]] = [("", f"{found.size} \u2192 {found.target_vocab_size}")]
    lines.append(("ok", "in force") if found.in_force else ("bad", "NOT in force"))
    if found.equals_d2t_plus_arange is not None:
        right = found.equals_d2t_plus_arange
        lines.append(("ok", "d2t + arange") if right else ("bad", "not d2t + arange"))
    return Stage("hot_token_id", tuple(lines))


def _verify(report: Report) -> Stage:
    seen, setting = report.evidence.acceptance, report.evidence.understood.setting
    if seen.accept_length is None:
        return Stage("verify", (("unknown", "no round yet"),))
    lines: list[tuple[Mark, str]] = [("", f"accept length {seen.accept_length:.2f}")]
    if setting is not None:
        lines.append(("", f"of at most {setting[0] + 1}"))
    return Stage("verify", tuple(lines))
