"""E3P203: no aux states reached the logits processor."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="With the algorithm EAGLE3, whether aux hidden states arrived at the target's logits "
    "processor in prefill and in verify, whenever hidden states were asked for.",
    why="The states are captured in the target's layers and handed up through the model's classes. "
    "A wrapper that does not pass them on, a class that never flagged its layers, or a graph "
    "captured too early loses them; the draft then gets the ordinary last hidden state.",
    evidence="`aux_states.count`, `.phase`, `.capture_hidden_mode`.",
    fix="Update SGLang: several classes have lost and regained their aux states (Qwen3-VL, "
    "Qwen3.5, MiniMax-M3). Otherwise report it to SGLang with the target's class.",
    ignore="When the draft is trained on the last hidden state alone and has no `fc` "
    "(`use_aux_hidden_state: false`); the rule then stays silent by itself.",
)

_PHASES = {"target_prefill": "prefill", "target_verify": "verify"}


def _check(rank: RankEvidence) -> list[Result]:
    if rank.algorithm != "EAGLE3" or (rank.drafts and all(d.fc == "absent" for d in rank.drafts)):
        return []
    lost = [
        aux
        for aux in rank.aux
        if aux.count is None
        and aux.phase in _PHASES
        and aux.capture_hidden_mode.upper().rsplit(".", 1)[-1] != "NULL"
    ]
    if not lost:
        return []
    phases = " and ".join(sorted({_PHASES[aux.phase] for aux in lost}))
    model = rank.layer_ids.model_class if rank.layer_ids is not None else "the target's class"
    return [
        RULE.finding(
            "error",
            f"no aux hidden states reached the logits processor in {phases}, although the "
            "algorithm is EAGLE3",
            [
                Seen(
                    f"aux states, {aux.phase}",
                    f"none in {aux.calls} calls",
                    f"aux_states.count, {aux.forward_mode}, mode {aux.capture_hidden_mode}",
                )
                for aux in lost
            ],
            f"update SGLang; if it is current, report to SGLang that {model} does not hand its aux "
            "hidden states to the logits processor",
        )
    ]


RULE = Rule("E3P203", "aux states are lost", PAGE, per_rank(_check))
