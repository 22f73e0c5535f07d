"""E3P119: the class captures something else than the residual stream.

Which class and release is data in ``host/target_classes.py``: Gemma-3 from 0.5.17, Gemma-4 to
0.5.21, unreduced sums under all-reduce fusion up to 0.5.20, an embedding output that later layers
overwrite up to 0.5.20.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import Fault, embedding_by_probe, known_faults, lookup
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, target_key, whole
from sglang_eagle3_probe.rules.static.layer_ids import gives_embedding, in_force

PAGE = Page(
    checks="Known faults of capture by target class and release; those of tensor parallelism only "
    "when the arguments say that more than one rank is used.",
    why="The layer ids are right and the values are not, so the draft sees other inputs than in "
    "training whatever the config says.",
    evidence="The target's architecture, the release, `--tp-size`.",
    fix="Use a release without the fault (the finding names the last one that has it). Against "
    "unreduced sums: `--enforce-disable-flashinfer-allreduce-fusion`. Against an overwritten "
    "embedding output: `--enable-probe`.",
    ignore="When the draft was trained on states that the same release captured.",
)


def _ranks(situation: Situation) -> int:
    for name in ("tp_size", "tensor_parallel_size", "tp"):
        found = whole(situation, name)
        if found is not None:
            return found
    return 1


def _or_else(fault: Fault, situation: Situation, file: str) -> str:
    """What helps without another release."""
    if fault.needs:
        return ", or start it with `--enforce-disable-flashinfer-allreduce-fusion`"
    if fault.boundary == 0 and embedding_by_probe(situation.target_class):
        return ", or start it with `--enable-probe`, which captures a copy"
    return f", or mend the capture in `{file}` (add the residual, clone the tensor)"


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    if found is None:
        return []
    results: list[Result] = []
    row = lookup(situation.target_class)
    for fault in known_faults(situation.target_class, situation.release):
        if fault.captures_nothing:
            continue
        if fault.boundary is not None and fault.boundary not in found.boundaries:
            continue
        if fault.boundary == 0 and gives_embedding(situation):
            continue
        off = situation.argument("enforce_disable_flashinfer_allreduce_fusion")
        if fault.needs and (_ranks(situation) < 2 or off):
            continue
        last = ".".join(map(str, fault.until))
        file = f"models/{row.file}.py" if row is not None else "the model file"
        results.append(
            RULE.finding(
                "warning" if fault.needs else "error",
                f"{situation.target_class} of SGLang {situation.release}: {fault.what}",
                [
                    Seen(
                        "target architecture",
                        situation.target_class,
                        target_key(situation, "architectures"),
                    ),
                    Seen("release", situation.release, f"fault known up to {last}"),
                ],
                f"use a SGLang release after {last}" + _or_else(fault, situation, file),
            )
        )
    return results


RULE = StaticRule("E3P119", "this class captures wrong values", PAGE, _check)
