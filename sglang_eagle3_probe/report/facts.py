"""Facts of one rank put into words; shared by the terminal report and the comparison."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sglang_eagle3_probe.analysis.probe_cost import Cost
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.trace.capture_records import Capture
from sglang_eagle3_probe.trace.records import DraftForward, LayerIds, Seams, VocabMap, Weights
from sglang_eagle3_probe.trace.static_records import StaticFindings

UNITS = {"output_id": "output ids", "boundary": "boundaries", "default": "SGLang's default"}


def layer_name(boundary: int) -> str:
    """What a boundary h is, in words."""
    return "embedding" if boundary == 0 else f"layer {boundary - 1} out"


def number(value: float) -> str:
    """Three significant digits in at most 7 characters."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 99_999.5:
        return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def how_read(ids: LayerIds) -> str:
    """Where the list came from, how it was read and why."""
    why = f" ({ids.unit_why})" if ids.unit_why else ""
    if ids.configured is None:
        return f"no list configured; SGLang's default boundaries{why}"
    place = {"eagle_config": "the draft's config", "variable": "the variable"}.get(
        ids.configured_at, ids.configured_at
    )
    return f"{ids.configured} from {place}, read as {UNITS[ids.unit]}{why}"


def stock_name(ids: LayerIds) -> str:
    """What to call the SGLang that :func:`stock` speaks of."""
    return "source-patched SGLang" if ids.source_patched else "stock SGLang"


def stock(ids: LayerIds) -> str:
    """What SGLang without the probe would have captured."""
    if ids.stock_error:
        got = f" (boundaries {ids.stock_boundaries})" if ids.stock_boundaries else ""
        return f"would fail{got}: {ids.stock_error}"
    if ids.stock_boundaries is None:
        return "not known"
    served = [slot.boundary for slot in ids.slots]
    same = " (the same)" if served == ids.stock_boundaries else ""
    return f"would capture boundaries {ids.stock_boundaries}{same}"


def files_line(found: StaticFindings) -> str:
    """What the static rules said of configs and checkpoints."""
    if not found.rules:
        return f"NOT judged: {' '.join(found.notes)}"
    serious = sum(f.severity != "note" for f in found.findings)
    words = [f"{serious or 'no'} fault{'s' * (serious != 1)} by {found.rules} rules"]
    if found.unknown:
        words.append(f"{len(found.unknown)} not decided")
    return ", ".join([*words, *found.notes])


def fc_is_right(draft: DraftForward) -> bool | None:
    """``fc`` belongs to both extends and not to decode. ``None``: the draft has no ``fc``."""
    if draft.fc == "absent":
        return None
    return (draft.fc == "bypassed") == (draft.phase == "decode")


def fc_line(rank: RankEvidence) -> str:
    """All phases in one line, for the comparison."""
    if not rank.drafts:
        return "no draft forward recorded"
    seen = dict.fromkeys(
        f"{d.fc} in {d.phase}{'' if fc_is_right(d) is not False else ' (WRONG)'}"
        for d in rank.drafts
    )
    return ", ".join(seen)


def handed_line(rank: RankEvidence) -> str:
    """Shapes of the prefill's hidden states, as the target gave them and as the draft got them."""
    if not rank.target_extends:
        return ""
    last = rank.target_extends[-1]
    return (
        f"{last.handed_hidden_states_shape} of the target's {last.hidden_states_shape} in prefill "
        f"({last.worker_generation} worker, mode {last.capture_hidden_mode})"
    )


def map_line(found: VocabMap | None) -> str:
    """The vocabulary map, in one line."""
    if found is None:
        return "not recorded"
    if not found.present and not found.in_force:
        return "none: the draft proposes target ids directly"
    parts = [f"{found.size} draft ids onto {found.target_vocab_size} target ids"]
    parts.append("in force" if found.in_force else "NOT in force")
    for value, good, bad in (
        (found.strictly_increasing, "increasing", "NOT increasing"),
        (found.equals_d2t_plus_arange, "equals d2t + arange", "NOT d2t + arange"),
        (found.agrees_with_t2d, "agrees with t2d", "DISAGREES with t2d"),
    ):
        if value is not None:
            parts.append(good if value else bad)
    if found.head_rows is not None and found.head_rows != found.size:
        parts.append(f"head has {found.head_rows} rows")
    if found.digest:
        parts.append(f"digest {found.digest[:12]}")
    return ", ".join(parts)


def weights_line(weights: Weights | None) -> str:
    """The draft checkpoint's fate, in one line."""
    if weights is None:
        return "not recorded"
    parts = [f"{weights.loaded_names} tensors read"]
    parts.append(f"{len(weights.not_taken) or 'none'} left over")
    parts.append(f"{len(weights.not_filled) or 'no'} parameters unfilled")
    parts.append(f"embedding: {weights.embed_source}, head: {weights.head_source}")
    return ", ".join(parts)


def arguments_in_short(rank: RankEvidence) -> str:
    """``EAGLE3, steps 3, topk 1, draft tokens 4; attention: fa3``."""
    if rank.arguments is None:
        return "arguments not recorded"
    force = rank.arguments.in_force
    parts = [rank.algorithm or "no speculation"]
    for name, label in (
        ("speculative_num_steps", "steps"),
        ("speculative_eagle_topk", "topk"),
        ("speculative_num_draft_tokens", "draft tokens"),
        ("attention_backend", "attention"),
        ("speculative_draft_attention_backend", "draft attention"),
    ):
        if force.get(name) is not None:
            parts.append(f"{label} {force[name]}")
    return ", ".join(parts)


def arguments_that_differ(rank: RankEvidence) -> list[tuple[str, Any, Any]]:
    """(name, asked, in force) where SGLang runs something else than was asked."""
    if rank.arguments is None:
        return []
    force = rank.arguments.in_force
    return [
        (name, asked, force[name])
        for name, asked in rank.arguments.asked.items()
        if name in force and not _same(asked, force[name])
    ]


def _same(asked: Any, in_force: Any) -> bool:
    # The command line gives text; SGLang holds numbers and enums.
    return str(asked).lower() in {str(in_force).lower(), str(in_force).rsplit(".", 1)[-1].lower()}


def cost_line(cost: Cost) -> str:
    """What the probe took of the server's time."""
    return (
        f"{cost.round_us:.0f} us per verify round on the scheduler's thread "
        f"({100 * cost.scheduler_share:.2f} % of a round at the busiest, "
        f"{cost.busy_round_us / 1e3:.1f} ms); "
        f"own threads {100 * cost.threads_share:.2f} % of a core"
    )


def captures_line(captures: list[Capture]) -> str:
    """Requests whose states lie in files, and how to go on; empty where there are none."""
    written = [capture for capture in captures if capture.pieces]
    if not written:
        return ""
    size_mb = sum(capture.bytes for capture in written) / 1e6
    layers = sum(capture.all_boundaries for capture in written)
    holes = sum(bool(capture.lost) for capture in written)
    folder = written[-1].folder
    notes = [
        f"{len(written)} requests, {size_mb:.1f} MB in {folder}",
        f"{layers} with all boundaries" if layers else "",
        f"{holes} with losses" if holes else "",
        f"go on with: sglang-eagle3-probe replay {folder}",
    ]
    return "; ".join(filter(None, notes))


def capture_losses(captures: dict[str, int]) -> str:
    """What captures lost; empty where nothing."""
    if not captures:
        return ""
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(captures.items()))
    return f"captures not whole: {told}"


def seams_line(seams: Seams) -> str:
    """``12 patched, 6 not in this release``."""
    states: Counter[str] = Counter(seam.state for seam in seams.seams)
    parts = [
        f"{states[state]} {words}"
        for state, words in (
            ("failed", "FAILED"),
            ("patched", "patched"),
            ("not_imported", "not imported yet"),
            ("absent", "not in this release"),
        )
        if states[state]
    ]
    return ", ".join(parts) or "none"


def wiring_groups(ranks: list[RankEvidence]) -> list[list[RankEvidence]]:
    """Ranks with the same wiring, together."""
    groups: dict[Any, list[RankEvidence]] = {}
    for rank in ranks:
        ids = rank.layer_ids
        key = (
            str([(s.boundary, s.origin) for s in ids.slots]) if ids else "",
            str(sorted({(d.phase, d.fc, d.width_in) for d in rank.drafts})),
            rank.vocab_map.digest if rank.vocab_map else "",
            weights_line(rank.weights),
        )
        groups.setdefault(key, []).append(rank)
    return list(groups.values())


def losses_line(rank: RankEvidence) -> str:
    """What the trace does not hold."""
    losses = rank.losses
    lost, missed = sum(losses.dropped_records.values()), sum(losses.missed.values())
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(losses.missed.items()))
    parts = [
        f"{lost} records dropped" if lost else "",
        f"{losses.rotated_away_records} rounds rotated away" * bool(losses.rotated_away_files),
        f"{missed} not looked at ({kinds})" if missed else "",
        f"{losses.write_errors} failed writes" if losses.write_errors else "",
        f"faults in {', '.join(sorted(losses.faults))}" if losses.faults else "",
        f"switched off: {', '.join(losses.disabled_sites)}" if losses.disabled_sites else "",
        capture_losses(losses.captures),
    ]
    end = "" if rank.ended_in_order else " (no footer: the server was killed or still runs)"
    return (", ".join(filter(None, parts)) or "none") + end
