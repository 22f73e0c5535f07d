"""Rule pages as Markdown: ``python -m sglang_eagle3_probe.rules.pages docs/rules``."""

from __future__ import annotations

import sys
from pathlib import Path

from sglang_eagle3_probe.rules.base import Rule
from sglang_eagle3_probe.rules.registry import RULES
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.registry import RULES as STATIC_RULES

HEADINGS = (
    ("What it checks", "checks"),
    ("Why it matters", "why"),
    ("Evidence", "evidence"),
    ("How to fix", "fix"),
    ("When to ignore", "ignore"),
)


def page(rule: Rule | StaticRule) -> str:
    """One rule's page."""
    parts = [f"# {rule.code}: {rule.title}"]
    parts += [f"## {heading}\n\n{getattr(rule.page, name)}" for heading, name in HEADINGS]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The list of all rules."""
    rows = "\n".join(
        f"| [{r.code}]({r.code}.md) | {'doctor' if isinstance(r, StaticRule) else 'report'} "
        f"| {r.title} |"
        for r in RULES_BY_CODE
    )
    return (
        "# Rules\n\n"
        "`sglang-eagle3-probe report` runs those on a trace, `sglang-eagle3-probe doctor` those "
        "that need two configs and the headers of the draft's checkpoint. A server with the probe "
        "runs these too when it loads the draft, and `report` shows what they said. Exit codes: 0 "
        "clean (notes allowed), 1 errors or warnings, 2 could not run. These pages are generated "
        "from the rules: `python -m sglang_eagle3_probe.rules.pages docs/rules`.\n\n"
        "| Codes | About |\n"
        "| --- | --- |\n"
        "| E3P1xx | layer ids: which target layers reach the draft, in which order |\n"
        "| E3P2xx | aux hidden states lost, `fc` bypassed, algorithm flag, architecture |\n"
        "| E3P3xx | structure and weights of the draft |\n"
        "| E3P4xx | vocabulary map, embedding, head |\n"
        "| E3P5xx | rotary settings, context length, quantisation, dtype |\n"
        "| E3P6xx | acceptance, and the numbers of speculation |\n"
        "| E3P7xx | values of states (level `stats`) |\n"
        "| E3P9xx | the probe and its trace |\n\n"
        f"| Code | Command | Title |\n| --- | --- | --- |\n{rows}\n"
    )


RULES_BY_CODE: list[Rule | StaticRule] = sorted((*RULES, *STATIC_RULES), key=lambda rule: rule.code)


def pages() -> dict[str, str]:
    """File name -> text."""
    return {"README.md": index(), **{f"{rule.code}.md": page(rule) for rule in RULES_BY_CODE}}


def main(arguments: list[str]) -> int:
    """Write all pages into the folder named."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m sglang_eagle3_probe.rules.pages docs/rules\n")
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
