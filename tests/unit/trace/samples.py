"""Made-up records and traces for the tests of the reading side."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec

from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTime,
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.cost_records import ProbeCost, SeamCost
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import (
    Arguments,
    AuxStates,
    DraftForward,
    Footer,
    Header,
    LayerIds,
    Losses,
    Ranks,
    Seams,
    SeamState,
    Slot,
    SlotStats,
    SlotWindow,
    StatsCoverage,
    Tensorprint,
    VocabMap,
    Weights,
)
from sglang_eagle3_probe.trace.static_records import (
    StaticEvidence,
    StaticFinding,
    StaticFindings,
    StaticUnknown,
)

WIDTH = 192
STATIC = "E3P513"
"""A static rule that no rule of a trace covers."""


def header(**changes: Any) -> Header:
    values: dict[str, Any] = {
        "probe_version": "0.1.0",
        "sglang_version": "0.5.23",
        "versions": {"torch": "2.9.1"},
        "pid": 4242,
        "role": "scheduler",
        "ranks": Ranks(tp_rank=0, tp_size=1, dp_size=1, pp_size=1),
        "level": "wiring",
        "patches": ["embedding_capture", "capture_order"],
        "settings": {},
        "wall_s": 1_700_000_000.0,
    }
    return Header(**{**values, **changes})


def slots(output_ids: list[int], origin: str = "draft config eagle_config") -> list[Slot]:
    return [Slot(boundary=o + 1, output_id=o, origin=origin) for o in output_ids]


def layer_ids(served: list[int], **changes: Any) -> LayerIds:
    values: dict[str, Any] = {
        "model_class": "DeepseekV3ForCausalLM",
        "num_layers": 10,
        "configured": served,
        "configured_at": "eagle_config",
        "unit": "output_id",
        "unit_why": "a list that holds -1 is output ids as a whole",
        "slots": slots(served),
        "stock_boundaries": [3, 6],
        "stock_error": "captured 2 of 3 aux hidden states",
        "patches_applied": ["embedding_capture"],
        "trained_output_ids": served,
        "trained_source": "trainer_accuracy.json",
        "draft_num_aux": 3,
    }
    return LayerIds(**{**values, **changes})


def aux_states(phase: Any = "target_prefill", **changes: Any) -> AuxStates:
    values: dict[str, Any] = {
        "phase": phase,
        "forward_mode": {"target_prefill": "EXTEND"}.get(phase, "TARGET_VERIFY"),
        "capture_hidden_mode": "FULL",
        "count": 3,
        "packed": True,
        "widths": [WIDTH] * 3,
        "hidden_width": WIDTH,
        "rows": 12,
        "dtype": "torch.bfloat16",
        "device": "cpu",
        "boundaries": [0, 3, 6],
        "reordered": False,
        "in_graph_capture": False,
        "calls": 64,
        "rows_total": 900,
    }
    return AuxStates(**{**values, **changes})


def draft_forward(phase: Any, **changes: Any) -> DraftForward:
    decode = phase == "decode"
    values: dict[str, Any] = {
        "phase": phase,
        "model_class": "LlamaForCausalLMEagle3",
        "width_in": WIDTH if decode else 3 * WIDTH,
        "embed_width": WIDTH,
        "fc": "bypassed" if decode else "taken",
        "fc_in_features": 3 * WIDTH,
        "fc_out_features": WIDTH,
        "rows": 4,
        "dtype": "torch.bfloat16",
        "calls": 128,
        "rows_total": 512,
        "in_graph_capture": False,
    }
    return DraftForward(**{**values, **changes})


def vocab_map(**changes: Any) -> VocabMap:
    values: dict[str, Any] = {
        "present": True,
        "in_force": True,
        "size": 512,
        "target_vocab_size": 1024,
        "head_rows": 512,
        "minimum": 0,
        "maximum": 1020,
        "identity_share": 0.01,
        "strictly_increasing": True,
        "duplicates": 0,
        "equals_d2t_plus_arange": True,
        "agrees_with_t2d": True,
        "d2t_looks_direct": False,
        "digest": "9f1c2ab34de5",
    }
    return VocabMap(**{**values, **changes})


def weights(**changes: Any) -> Weights:
    values: dict[str, Any] = {
        "model_class": "LlamaForCausalLMEagle3",
        "loaded_names": 15,
        "not_taken": [],
        "not_filled": [],
        "embed_source": "target",
        "head_source": "own",
        "digests": {
            "fc": Tensorprint(shape=[WIDTH, 3 * WIDTH], dtype="bfloat16", digest="77aa"),
            "lm_head": Tensorprint(shape=[512, WIDTH], dtype="bfloat16", digest="11"),
        },
    }
    return Weights(**{**values, **changes})


def arguments(**changes: Any) -> Arguments:
    force = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "attention_backend": "torch_native",
    }
    values: dict[str, Any] = {
        "asked": {"speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": "8"},
        "in_force": force,
        "target_architecture": "DeepseekV3ForCausalLM",
        "draft_architecture": "LlamaForCausalLMEagle3",
        "target_hidden_size": WIDTH,
        "target_vocab_size": 1024,
        "draft_vocab_size": 512,
        "target_num_layers": 10,
    }
    return Arguments(**{**values, **changes})


def seams(**changes: Any) -> Seams:
    values: dict[str, Any] = {
        "seams": [
            SeamState(name="draft_forward", target="a.B.forward", state="patched"),
            SeamState(
                name="v1_worker", target="c.D.e", state="absent", why="SGLang 0.5.9 to 0.5.12"
            ),
        ],
        "release_proved": True,
    }
    return Seams(**{**values, **changes})


def rounds(
    count: int, chances: tuple[float, ...] = (0.76, 0.74, 0.72), seed: int = 7
) -> list[VerifyRound]:
    """Rounds of eight requests, with the given conditional rates."""
    random_ = random.Random(seed)
    result = []
    for i in range(count):
        correct = 0
        while correct < len(chances) and random_.random() < chances[correct]:
            correct += 1
        result.append(
            VerifyRound(
                steps=len(chances),
                topk=1,
                proposed_drafts=len(chances),
                rids=[f"{i % 8:012x}"],
                rounds=[i // 8],
                context_lens=[50 + i],
                correct_drafts=[correct],
            )
        )
    return result


def request_start(rid: str = "0a1b2c3d4e5f", **changes: Any) -> RequestStart:
    values: dict[str, Any] = {
        "prompt_tokens": 391,
        "cached_tokens": 128,
        "chunked_prefill": False,
        "temperature": 0.0,
        "greedy": True,
        "grammar": False,
    }
    return RequestStart(rid=rid, **{**values, **changes})


def request_end(rid: str = "0a1b2c3d4e5f", **changes: Any) -> RequestEnd:
    """64 tokens: one from the prefill, 41 drafts and 24 bonus tokens, two of them cut."""
    values: dict[str, Any] = {
        "reason": "stop",
        "output_tokens": 64,
        "verify_rounds": 24,
        "correct_drafts": 41,
        "histogram": [5, 4, 8, 7],
        "cut_tokens": 2,
    }
    return RequestEnd(rid=rid, **{**values, **changes})


def refusals(rid: str = "0a1b2c3d4e5f", number: int = 7, **changes: Any) -> Refusals:
    values: dict[str, Any] = {
        "positions": [2],
        "ranks": [3],
        "target_argmax_matches": [False],
    }
    return Refusals(rids=[rid], rounds=[number], **{**values, **changes})


def phase_times(**changes: Any) -> PhaseTimes:
    means = {"draft": 1.2, "verify": 5.1, "draft_extend": 0.9, "prefill": 40.0}
    values: dict[str, Any] = {
        "clock": "device",
        "steps": 3,
        "topk": 1,
        "draft_tokens": 4,
        "phases": [
            PhaseTime(
                phase=phase,  # type: ignore[arg-type]
                batch_size=8,
                count=60,
                mean_ms=ms,
                least_ms=0.9 * ms,
                median_ms=0.98 * ms,
                greatest_ms=1.5 * ms,
            )
            for phase, ms in means.items()
        ],
    }
    return PhaseTimes(**{**values, **changes})


def clean(rounds_count: int = 400) -> list[Record]:
    """Everything right: trained on [-1, 2, 5] and served so."""
    return [
        seams(),
        arguments(),
        layer_ids([-1, 2, 5]),
        vocab_map(),
        weights(),
        aux_states(),
        aux_states("target_verify"),
        draft_forward("extend_prefill"),
        draft_forward("extend_verify"),
        draft_forward("decode"),
        *rounds(rounds_count),
    ]


AUX_RMS = (0.031, 0.42, 0.97)
"""RMS of the three slots of ``clean``."""


def slot_window(rms: float = 0.97, **changes: Any) -> SlotWindow:
    values: dict[str, Any] = {
        "rms_mean": rms,
        "rms_min": 0.8 * rms,
        "rms_max": 1.3 * rms,
        "mean": 0.01 * rms,
        "absmax": 9.5 * rms,
        "nonfinite": 0,
    }
    return SlotWindow(**{**values, **changes})


def slot_stats(site: str, window: int = 0, **changes: Any) -> SlotStats:
    """Window number ``window`` of a site: 20 forwards of 4 rows."""
    aux = site.startswith("aux_") or (site.startswith("extend_") and site.endswith("_in"))
    slots_ = [slot_window(rms) for rms in AUX_RMS] if aux else [slot_window(0.6)]
    if site.startswith("aux_"):
        for place, slot in enumerate(slots_):
            slot.equals_embedding = 0.0 if place else 1.0
    first = 20 * window
    values: dict[str, Any] = {
        "site": site,
        "tapped": "replay" if "prefill" not in site else "eager",
        "first_tick": first,
        "last_tick": first + 19,
        "lost_ticks": 0,
        "rows": 80,
        "padded_rows_dropped": 0,
        "joined": True,
        "slots": slots_,
        "boundaries": [0, 3, 6] if aux else [],
        "found_in_target": 1.0 if aux and site.endswith("_in") else None,
        "tick_digests": {str(t): f"{site}-{t}" for t in range(first + 12, first + 20)},
    }
    return SlotStats(**{**values, **changes})


SITES = (
    "extend_prefill_in",
    "extend_verify_in",
    "aux_prefill",
    "aux_verify",
    "target_embedding",
    "extend_prefill_fc",
    "extend_prefill_hidden",
    "extend_verify_fc",
    "extend_verify_hidden",
    "decode0_in",
    "decode0_hidden",
    "decode1_in",
    "decode1_hidden",
)
"""In the order the ring has them."""


def probe_cost(rounds_count: int = 400, **changes: Any) -> ProbeCost:
    values: dict[str, Any] = {
        "window_s": 5.0,
        "seams": [
            SeamCost(
                seam="verify_result",
                calls=rounds_count,
                timed_calls=rounds_count // 16,
                total_us=7.0 * rounds_count,
            ),
            SeamCost(seam="target_logits", calls=10, timed_calls=1, total_us=200.0),
        ],
        "threads_cpu_ms": {"eagle3-probe-writer": 21.0},
    }
    return ProbeCost(**{**values, **changes})


def stats_coverage(**changes: Any) -> StatsCoverage:
    values: dict[str, Any] = {
        "tapped": dict.fromkeys(SITES, "replay"),
        "skipped": {},
        "refused_drains": {},
        "ring_bytes": 3_000_000,
    }
    return StatsCoverage(**{**values, **changes})


def static_finding(code: str = STATIC, severity: Any = "error", **changes: Any) -> StaticFinding:
    fields: dict[str, Any] = {
        "title": "as the rule says",
        "message": f"{code} saw something in the files",
        "evidence": [StaticEvidence(what="rope_theta", value=1e6, where="draft config.json")],
        "fix": 'set `"rope_theta": 10000.0`',
    }
    return StaticFinding(code=code, severity=severity, **{**fields, **changes})


def static_unknown(code: str) -> StaticUnknown:
    return StaticUnknown(code=code, title="a question", message=f"{code} asks", decide="look")


def static_findings(*found: StaticFinding | StaticUnknown, **changes: Any) -> StaticFindings:
    fields: dict[str, Any] = {
        "sglang_version": "0.5.23",
        "target_path": "target",
        "draft_path": "draft",
        "rules": 62,
        "findings": [f for f in found if isinstance(f, StaticFinding)],
        "unknown": [f for f in found if isinstance(f, StaticUnknown)],
        "arguments": {"speculative_algorithm": "EAGLE3"},
        "asked": None,
        "notes": [],
        "seconds": 0.02,
    }
    return StaticFindings(**{**fields, **changes})


def values(windows: int = 12, *, only: str = "", **changes: Any) -> list[Record]:
    """Windows of all sites; ``changes`` go to the site ``only``, or to all."""
    records: list[Record] = [
        slot_stats(site, window, **(changes if only in ("", site) else {}))
        for window in range(windows)
        for site in SITES
    ]
    return [*records, stats_coverage()]


def clean_with_values(windows: int = 12, **how: Any) -> list[Record]:
    """``clean`` at level ``stats``."""
    return [*clean(), *values(windows, **how)]


def owners_case(rounds_count: int = 400) -> list[Record]:
    """Trained on the embedding and two layers, served without the embedding."""
    ids = layer_ids(
        [2, 5, 8],
        configured=[2, 5, 8],
        unit_why="the class adds 1 to an explicit list",
        stock_boundaries=[3, 6, 9],
        stock_error="",
        patches_applied=[],
        trained_output_ids=[-1, 2, 5],
    )
    fixed = [r for r in clean(0) if not isinstance(r, LayerIds)]
    return [*fixed, ids, *rounds(rounds_count, (0.33, 0.25, 0.2))]


def replace(records: list[Record], *new: Record) -> list[Record]:
    """The list with records of the same types as the new ones taken out, and the new ones added."""
    kinds = {type(r) for r in new}
    return [r for r in records if type(r) not in kinds] + list(new)


def write(
    directory: Path,
    records: list[Record],
    *,
    head: Header | None = None,
    name: str = "probe-scheduler-tp0-pid4242",
    part: int = 0,
    footer: bool = True,
    losses: Losses | None = None,
) -> Path:
    """A trace file as the recorder would leave it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-part{part}.jsonl"
    lines: list[Record] = [head or header(part=part), *records]
    if footer:
        end = Footer(
            records_written=len(records), bytes_written=0, losses=losses or Losses(), reason="test"
        )
        lines.append(end)
    for seq, record in enumerate(lines[1:]):
        record.seq = seq
        record.wall_s = 1_700_000_000.0 + seq * 0.02
        record.monotonic_s = record.monotonic_s or 1000.0 + seq * 0.02
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path
