"""The static rules on the files of a running server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglang_eagle3_probe.checkpoint.embeddings import compared_embeddings
from sglang_eagle3_probe.checkpoint.facts import CheckpointError, Situation
from sglang_eagle3_probe.checkpoint.live import LiveFacts
from sglang_eagle3_probe.checkpoint.overrides import ARGUMENT, with_overrides
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.rules.base import Finding, Result, Unknown
from sglang_eagle3_probe.rules.plain_values import printable, small
from sglang_eagle3_probe.rules.static.registry import RULES, judge
from sglang_eagle3_probe.trace.static_records import (
    StaticEvidence,
    StaticFinding,
    StaticFindings,
    StaticUnknown,
)


@dataclass(frozen=True)
class Judged:
    """Results, and what was judged."""

    release: str
    arguments: Mapping[str, Any]
    asked: Mapping[str, Any] | None
    results: tuple[Result, ...] = ()
    rules: int = 0
    notes: tuple[str, ...] = ()


def judge_files(
    *,
    target: str,
    draft: str,
    release: str,
    arguments: Mapping[str, Any],
    asked: Mapping[str, Any] | None,
    overrides: str,
    trained_output_ids: tuple[int, ...] | None,
    live: LiveFacts,
) -> Judged:
    """Read both checkpoints and run every static rule.

    Reads configs, the draft's safetensors headers, d2t and t2d, and some rows of an embedding that
    the draft has of its own; no other tensor. Files that cannot be read are a note, not an error:
    SGLang may have them from elsewhere.

    Args:
        arguments: those in force. asked: those given, where known.
        overrides: ``--json-model-override-args``; SGLang applies it to target and draft.
        trained_output_ids: the user's word on training, which goes before the trainer's notes.
    """
    judged = Judged(release, arguments, asked)
    try:
        facts = (read_checkpoint(target, headers=False), read_checkpoint(draft))
    except CheckpointError as error:
        return replace(judged, notes=(str(error),))
    notes = [
        f"{name}: {note}"
        for name, side in zip(("target", "draft"), facts, strict=True)
        for note in side.notes
    ]
    of_target, of_draft = facts
    if trained_output_ids is not None:
        of_draft = replace(of_draft, trained_output_ids=trained_output_ids)
    if overrides.strip() not in ("", "{}"):
        arguments = {**arguments, ARGUMENT: overrides}
    situation = with_overrides(
        Situation(
            of_target,
            of_draft,
            release,
            arguments,
            asked=asked,
            live=live,
            embedding_rows=compared_embeddings(target, draft, of_draft),
        )
    )
    return replace(judged, results=tuple(judge(situation)), rules=len(RULES), notes=tuple(notes))


def describe(judged: Judged, target: str, draft: str, seconds: float) -> StaticFindings:
    """The trace record; ``target`` and ``draft`` as the server names them."""
    return StaticFindings(
        sglang_version=judged.release,
        target_path=target,
        draft_path=draft,
        rules=judged.rules,
        findings=[_finding(r) for r in judged.results if isinstance(r, Finding)],
        unknown=[
            StaticUnknown(
                code=r.code,
                title=r.title,
                message=printable(r.message),
                decide=printable(r.decide),
            )
            for r in judged.results
            if isinstance(r, Unknown)
        ],
        arguments=small(dict(judged.arguments)),
        asked=small(dict(judged.asked)) if judged.asked is not None else None,
        notes=[small(note) for note in judged.notes],
        seconds=round(seconds, 3),
    )


def _finding(found: Finding) -> StaticFinding:
    return StaticFinding(
        code=found.code,
        severity=found.severity,
        title=found.title,
        message=printable(found.message),
        evidence=[
            StaticEvidence(what=seen.what, value=small(seen.value), where=seen.where)
            for seen in found.evidence
        ],
        fix=printable(found.fix),
    )
