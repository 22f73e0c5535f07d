"""What doctor found, as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sglang_eagle3_probe.checkpoint.facts import CheckpointFacts, Situation
from sglang_eagle3_probe.checkpoint.intent import Intent, trained_on
from sglang_eagle3_probe.report import doctor_ids
from sglang_eagle3_probe.report.lines import Line, blank, clean, fields, wrapped
from sglang_eagle3_probe.rules.base import SEVERITIES, Finding, Page, Result, Unknown
from sglang_eagle3_probe.rules.judging import exit_code, run_rules, worst_first
from sglang_eagle3_probe.rules.plain_values import plain
from sglang_eagle3_probe.rules.static.base import reduced

FORMAT = 1
STYLES = {"error": "bold red", "warning": "bold yellow", "note": "cyan", "unknown": "magenta"}


class CheckRule(Protocol):
    """What doctor needs of a static rule."""

    @property
    def code(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def page(self) -> Page: ...

    def check(self, situation: Situation, /) -> list[Result]:
        """Findings and open questions."""


@dataclass(frozen=True)
class Diagnosis:
    """One run of every static rule."""

    situation: Situation
    release_from: str
    """Where the release judged comes from, in words."""
    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...]
    not_checked: tuple[tuple[str, str], ...]
    """What was left out, and what would decide it."""
    why: Mapping[str, str]
    """Code -> why it matters."""
    intent: Intent
    rules: int

    @property
    def exit_code(self) -> int:
        """0 clean (notes allowed), 1 errors or warnings."""
        return exit_code(self.findings)


def diagnose(situation: Situation, release_from: str, rules: Sequence[CheckRule]) -> Diagnosis:
    """Run the rules; one that fails itself becomes an open question, and the others still run."""
    results = worst_first(
        run_rules(rules, lambda rule, _: rule.check(situation), attach="both config files")
    )
    return Diagnosis(
        situation,
        release_from,
        tuple(r for r in results if isinstance(r, Finding)),
        tuple(r for r in results if isinstance(r, Unknown)),
        tuple(not_checked(situation)),
        {rule.code: rule.page.why for rule in rules},
        trained_on(situation),
        len(rules),
    )


def not_checked(situation: Situation) -> list[tuple[str, str]]:
    """What no rule could see in this run."""
    left: list[tuple[str, str]] = []
    for name, facts in (("target", situation.target), ("draft", situation.draft)):
        left += [(f"{name}: {note}", "") for note in facts.notes]
    if situation.draft.tensors is None:
        left.append(
            (
                "names and shapes of the draft's weights, fc, the vocabulary map",
                "give the draft's folder with its safetensors files",
            )
        )
    if not situation.arguments:
        left.append(
            (
                "server arguments (steps, quantization, context length); EAGLE3 was assumed",
                'add --args "..." with the flags of your server command',
            )
        )
    for name in ("decrypted_config_file", "decrypted_draft_config_file", "config"):
        if name in situation.arguments:
            flag = "--" + name.replace("_", "-")
            left.append((f"{flag}: what it changes was not applied", "write it into the files"))
    if situation.token_counts is None:
        left.append(
            (
                "how much of the target's output the draft vocabulary covers",
                "add --tokens FILE with tokens that the target generated",
            )
        )
    elif situation.draft.d2t is None and reduced(situation):
        left.append(
            (
                "how much of the token file the draft vocabulary covers: its map was not found",
                "give the draft's folder with the tensor `d2t`",
            )
        )
    left.append(
        (
            "what the server really captures, loads and accepts",
            "start it with --enable-probe, then: sglang-eagle3-probe report DIR",
        )
    )
    return left


# -- JSON ---------------------------------------------------------------------------------------


def as_json(diagnosis: Diagnosis, *, ids: bool = False) -> str:
    """Deterministic JSON, as docs/doctor.schema.json describes it."""
    situation = diagnosis.situation
    intent = diagnosis.intent
    found: dict[str, Any] = {
        "format": FORMAT,
        "sglang": {
            "release": situation.release,
            "from": diagnosis.release_from,
            "source_patched": situation.source_patched,
        },
        "target": _side(situation.target),
        "draft": {
            **_side(situation.draft),
            "producer": {
                "name": intent.producer.name,
                "why": intent.producer.why,
                "confidence": intent.producer.confidence,
            },
        },
        "arguments": dict(sorted(situation.arguments.items())),
        "summary": {
            **{f"{s}s": sum(f.severity == s for f in diagnosis.findings) for s in SEVERITIES},
            "unknown": len(diagnosis.unknown),
            "rules": diagnosis.rules,
            "exit_code": diagnosis.exit_code,
        },
        "findings": [_finding_json(diagnosis, finding) for finding in diagnosis.findings],
        "unknown": [
            {"code": u.code, "title": u.title, "message": u.message, "decide": u.decide}
            for u in diagnosis.unknown
        ],
        "not_checked": [{"what": what, "decide": how} for what, how in diagnosis.not_checked],
    }
    if ids:
        found["layer_ids"] = doctor_ids.as_object(situation, intent)
    return json.dumps(plain(found), indent=2, allow_nan=False)


def _side(facts: CheckpointFacts) -> dict[str, Any]:
    return {
        "path": facts.path,
        "architecture": facts.architecture,
        "model_type": facts.model_type,
        "num_hidden_layers": facts.integer("num_hidden_layers"),
        "hidden_size": facts.integer("hidden_size"),
        "vocab_size": facts.integer("vocab_size"),
        "tensors": facts.weights,
    }


def _finding_json(diagnosis: Diagnosis, finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "title": finding.title,
        "message": finding.message,
        "evidence": [
            {"what": seen.what, "value": seen.value, "where": seen.where}
            for seen in finding.evidence
        ],
        "why": diagnosis.why.get(finding.code, ""),
        "fix": finding.fix,
    }


# -- text ---------------------------------------------------------------------------------------


def as_lines(diagnosis: Diagnosis, width: int, *, ids: bool = False) -> list[Line]:
    """The whole output; findings first, worst first."""
    lines = _subject(diagnosis, width)
    for finding in diagnosis.findings:
        lines += [blank(), *_finding(diagnosis, finding, width)]
    for item in diagnosis.unknown:
        head = f"unknown[{item.code}]: "
        lines += [blank(), *wrapped(head, item.message, width, STYLES["unknown"], "bold")]
        lines += wrapped("  = to decide: ", item.decide, width, "bold")
    if ids:
        lines += [blank(), *doctor_ids.as_lines(diagnosis.situation, diagnosis.intent, width)]
    lines += [blank(), Line([("Not checked", "bold")])]
    for what, how in diagnosis.not_checked:
        lines += wrapped("  - ", what, width, "dim")
        if how:
            lines += wrapped("    to decide: ", how, width, "dim")
    return [*lines, blank(), _summary(diagnosis)]


def _subject(diagnosis: Diagnosis, width: int) -> list[Line]:
    situation, intent = diagnosis.situation, diagnosis.intent
    target, draft = situation.target, situation.draft
    made = intent.producer
    patched = ", with the probe's source diffs" if situation.source_patched else ""
    rows = [
        ("target", f"{target.path} | {_words(target)}"),
        ("draft", f"{draft.path} | {_words(draft)}"),
        ("trained by", f"{made.name} ({made.confidence}: {made.why})"),
        ("SGLang", f"{situation.release} ({diagnosis.release_from})" + patched),
    ]
    return fields(rows, width)


def _words(facts: CheckpointFacts) -> str:
    layers, hidden = facts.integer("num_hidden_layers"), facts.integer("hidden_size")
    parts = [facts.architecture or "no architecture named"]
    parts += [f"{layers} layer" + "s" * (layers != 1)] if layers is not None else []
    parts += [f"hidden {hidden}"] if hidden is not None else []
    parts += [f"{facts.weights} tensors" if facts.weights is not None else "config only"]
    return ", ".join(parts)


def _finding(diagnosis: Diagnosis, finding: Finding, width: int) -> list[Line]:
    style = STYLES[finding.severity]
    head = f"{finding.severity}[{finding.code}]: "
    lines = wrapped(head, finding.message, width, style, "bold")
    before = None
    for seen in finding.evidence:
        if seen.where != before:
            lines += wrapped("  --> ", seen.where, width, "blue")
        before = seen.where
        lines += wrapped("   |  ", f"{seen.what} = {short(seen.value)}", width, "blue")
    why = diagnosis.why.get(finding.code, "").split("\n\n")[0].replace("`", "")
    if why and finding.severity != "note":
        lines += wrapped("  = why: ", why, width, "bold")
    return lines + wrapped("  = fix: ", finding.fix, width, "bold green")


def short(value: Any) -> str:
    """A value in one line of bounded length."""
    if isinstance(value, str):
        text = clean(value)
    else:
        if isinstance(value, (list, tuple)) and len(value) > 12:
            rest = len(value) - 10
            inner = ", ".join(json.dumps(plain(entry)) for entry in value[:10])
            return f"[{inner}, ... {rest} more]"[:300]
        text = json.dumps(plain(value)) if value is not None else "-"
    return text if len(text) <= 300 else f"{text[:290]}..."


def _summary(diagnosis: Diagnosis) -> Line:
    counts = {s: sum(f.severity == s for f in diagnosis.findings) for s in SEVERITIES}
    words = [f"{n} {s}{'s' * (n != 1)}" for s, n in counts.items() if n]
    if diagnosis.unknown:
        words.append(f"{len(diagnosis.unknown)} not decided")
    style = next((STYLES[s] for s in ("error", "warning") if counts[s]), "bold green")
    text = (
        ", ".join(words)
        if counts["error"] or counts["warning"]
        else ", ".join(["no fault found", *words])
    )
    more = " (sglang-eagle3-probe doctor --explain CODE tells more)" if diagnosis.findings else ""
    return Line([(text, style), (f" by {diagnosis.rules} rules{more}", "dim")])
