"""Makes docs/measurements/doctor-served.md from the rows of several releases."""

from __future__ import annotations

from collections.abc import Sequence

from .compare import Row

HEAD = """\
# The doctor's statements against real SGLang

<!-- Made by scripts/check_doctor. Do not edit by hand. -->

{cases} cases, {releases}: {rows} statements, {wrong} of them not what SGLang does{known}.
Each cell is SGLang's answer; where the doctor said otherwise, the cell says so with ✗.

How SGLang was asked, in a process of its own for each release (`tests/contract/served`), on a CPU,
with this environment's PyTorch and Transformers:

- **boundaries**: the real target class with small widths and its real number of layers; this
  release's own code reads the list out of the draft's config, and the real
  `set_eagle3_layers_to_capture` takes it. The cell is `layers_to_capture` afterwards.
- **captured by a forward**: one real forward of that class. Attention and expert layers are
  stand-ins that hand on what they got; embedding, residual stream, norms and whatever captures are
  SGLang's. Each captured state is told apart by its values: boundary h is the embedding plus what
  the layers before h added. `None` stands for a state that is no boundary's.
- **unread weights**, **unfilled parameters**: the real draft class, its real `load_weights` on a
  real safetensors file. A parameter that is not filled keeps the NaN it was given before; a tensor
  is read if a mark put into it turns up in a parameter. Public configs have their sizes made small
  and a checkpoint in their trainer's naming; `embed_tokens` is left out where the target's takes
  its place.
- **start**: the draft cannot be configured, built or loaded.
- **overrides**: both classes built under `--json-model-override-args`; the target's own theta is
  10000, the draft's 500000.
- **arguments**: real `ServerArgs`: steps, topk and draft tokens in force, and whether the algorithm
  asks for aux states at all (E3P210).

Codes in brackets are what the doctor says of the case. Not covered: several ranks (fused
all-reduce), CUDA graphs, vision-language targets, and classes without a small shape in
`target_shapes.py`. GptOss runs with expert stand-ins.

"""


def page(
    rows: Sequence[Row], releases: Sequence[str], cannot: Sequence[tuple[str, str, str]]
) -> str:
    """The whole page. ``cannot``: release, cases, and why SGLang could not be asked there."""
    wrong = [row for row in rows if not row.agree]
    parts = [
        HEAD.format(
            cases=len({row.case for row in rows}),
            releases=", ".join(releases),
            rows=len(rows),
            wrong=len(wrong),
            known=" (listed first)" if wrong else "",
        )
    ]
    if wrong:
        parts.append("## Disagreements\n\n")
        parts += [
            f"- {row.case}, {row.release}, {row.about}: the doctor says {safe(row.doctor)}, SGLang "
            f"{safe(row.sglang)}\n"
            for row in wrong
        ]
        parts.append("\n")
    if cannot:
        parts.append("## Could not be asked\n\n")
        parts += [f"- {release}: {what}: {safe(why)}\n" for release, what, why in cannot]
        parts.append("\n")
    for about in dict.fromkeys(row.about for row in rows):
        parts.append(_table(about, [row for row in rows if row.about == about], releases))
    return "".join(parts)


def _table(about: str, rows: Sequence[Row], releases: Sequence[str]) -> str:
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        text = safe(row.sglang)
        if about == "start" or "error" in row.doctor or "raise" in row.doctor:
            text += f" ({safe(row.doctor)})"
        cells.setdefault(row.case, {})[row.release] = (
            text if row.agree else f"✗ {text}; doctor: {safe(row.doctor)}"
        )
    lines = [f"## {about.capitalize()}\n", f"| Case | {' | '.join(releases)} |"]
    lines.append(f"| {' | '.join(['---'] * (len(releases) + 1))} |")
    for case, found in cells.items():
        values = [found.get(release, "") for release in releases]
        if len(set(values)) == 1 and len(values) > 1:
            values = [values[0], *["same"] * (len(values) - 1)]
        lines.append(f"| {safe(case)} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n\n"


def safe(text: str) -> str:
    """Fit for a cell; no folder of this machine."""
    plain = " ".join(text.replace("|", "\\|").split())
    words = ["FOLDER" if word.startswith("/") else word for word in plain.split(" ")]
    return " ".join(words)
