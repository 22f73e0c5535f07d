"""Makes docs/compatibility.md from the seam table, the facts and the wheels' sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sglang_eagle3_probe.host.seams import seams_for

from .expected import ALL_SEAMS, NEEDED
from .facts import FACTS, Fact
from .releases import PROOFS, PROVED_BY, RELEASES, strongest_proof
from .source import Source, judge

_HEAD = """\
# SGLang releases and the probe's seams

<!-- Made by scripts/compatibility from the seam table and SGLang's wheels. Do not edit by hand. -->

A *seam* is a function of SGLang that the probe wraps. This page says, release by release, whether
each of them is where the seam table (`sglang_eagle3_probe/host/seams.py`) says it is, with the
parameters that the probe reads by name. It was made by reading the published wheels with `ast`;
`tests/contract` checks the same on every run. On a release newer than the last one here the probe
tries the newest rows, checks each as it wraps it, and says in the log what it found.
"""

_LEGEND = """\
- ✓: present, and every parameter that the probe reads is in the signature; a number says that the
  seam has several targets there, one for each model or worker class, and all of them hold
- -: the release has no such seam, and the table says so
- ✗: the table expects the seam and it does not hold; what is missing is named
"""

_NOTE = """\
Up to 0.5.12.post1 SGLang has two EAGLE workers. Up to 0.5.10.post1 V1 is its default, later V2.
V1 never passes `verify_result`: its acceptance is on the CPU in what `EAGLEWorker` returns, and
`verify_result_v1` reads it there. Up to 0.5.10.post1 SGLang captures CUDA graphs with
the default layer ids and applies the configured ones afterwards; with the probe's patch
`ids_before_graphs` (on by default) the graphs get the configured ones. Those releases have no
plugins: start them with `python -m sglang_eagle3_probe.launch_server`.
"""

_PROOF_HEAD = """\
Proofs, weakest first; a release shows its strongest in the table. What is not listed for a release
was not done there.
"""

_KINDS = {
    "assigns": "assigns `{}`",
    "attribute": "carries `{}`",
    "calls": "calls `{}`",
    "reads": "reads `{}`",
    "returns": "returns `{}` first",
    "text": "holds `{}`",
}


def page(sources: Mapping[str, Source]) -> str:
    """The whole page.

    Args:
        sources: every listed release's sources.
    """
    parts = [
        _HEAD,
        "## By release\n",
        _table(
            ["SGLang", "proof", *(f"`{name}`" for name in NEEDED)],
            ([release, *_cells(release, sources[release])] for release in reversed(RELEASES)),
        ),
        _LEGEND,
        _NOTE,
        _PROOF_HEAD,
        _table(
            ["proof", "means", "releases"],
            ([name, meaning, _proved_by(name)] for name, meaning in PROOFS.items()),
        ),
        "## Targets\n",
        _table(
            ["seam", "target", "reads", "SGLang", "why"],
            (
                [f"`{row.name}`", f"`{row.module}`<br>`{row.attribute}`", _codes(row.parameters),
                 str(row.releases), row.why]
                for row in ALL_SEAMS
            ),
        ),
        "## Facts\n\nWhat the probe takes for granted around its seams, checked in the same way.\n",
        _table(["where", "what", "SGLang", "why"], (_fact_cells(fact) for fact in FACTS)),
    ]  # fmt: skip
    return "\n".join(parts)


def _proved_by(proof: str) -> str:
    proved = [r for r in RELEASES if proof == "signature" or proof in PROVED_BY.get(r, ())]
    return "all" if len(proved) == len(RELEASES) else ", ".join(proved) or "none"


def _cells(release: str, source: Source) -> list[str]:
    return [strongest_proof(release), *(_mark(release, name, source) for name in NEEDED)]


def _mark(release: str, name: str, source: Source) -> str:
    rows = [row for row in seams_for(release, ALL_SEAMS) if row.name == name]
    if not rows:
        return "-"
    faults = []
    for row in rows:
        verdict = judge(source, row)
        if verdict.missing:
            faults.append(f"no {_codes(verdict.missing)}")
        elif verdict.fault:
            faults.append(_escaped(verdict.fault))
    if faults:
        return "✗ " + "; ".join(faults)
    return "✓" if len(rows) == 1 else f"✓ {len(rows)}"


def _fact_cells(fact: Fact) -> list[str]:
    where = f"`{fact.module}`" + (f"<br>`{fact.scope}`" if fact.scope else "")
    return [where, _KINDS[fact.kind].format(fact.needle), str(fact.releases), fact.why]


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
