"""The way of a hidden state, drawn: target layers, captured boundaries, concatenation, ``fc``,
draft, map, verification; what is served against what was trained."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from sglang_eagle3_probe.report.facts import layer_name
from sglang_eagle3_probe.report.html.figure import Figure, Missing, Shown, Table, words
from sglang_eagle3_probe.report.html.svg import SMALL, Drawing, fitted
from sglang_eagle3_probe.report.html.wiring_model import (
    Block,
    Mark,
    Stage,
    blocks,
    concatenated,
    stages,
)
from sglang_eagle3_probe.report.verdict import Report
from sglang_eagle3_probe.rules.evidence import RankEvidence

BROAD, SLIM = 1080.0, 340.0
BLOCK_HEIGHT, GAP, TOP = 62.0, 12.0, 34.0
LINE_HEIGHT = 16.0
MOST_LAYER_LINES = 100
SIGN = {"ok": "\u2713", "bad": "\u2717", "unknown": "?", "": ""}


def wiring_figure(name: str, rank: RankEvidence, report: Report) -> Shown:
    """The picture of one rank, or why there is none."""
    title = "From target layers to verification"
    made = blocks(rank)
    ids = rank.layer_ids
    if ids is None or not made:
        return Missing(
            name,
            title,
            "No layer ids were recorded, so the wiring cannot be drawn. They are written when the "
            "target is set up for EAGLE-3: start the server with --speculative-algorithm EAGLE3 "
            "and --enable-probe.",
        )
    chain = stages(rank, report)
    joined = concatenated(rank)
    layers = max(ids.num_layers, *(b.served or 0 for b in made), 1)
    return Figure(
        name,
        title,
        _says(made, chain, joined),
        _broad(made, chain, joined, layers, ids.model_class),
        _slim(made, chain, joined, layers, ids.model_class),
        _table(made, rank),
        ("Solid lines: served. Dashed lines with an open diamond: what the draft was trained on.",)
        if any(b.state == "differs" for b in made)
        else (),
        broad=True,
    )


def _says(made: Sequence[Block], chain: Sequence[Stage], joined: str) -> str:
    parts = ", ".join(f"slot {b.place} gets {b.words}" for b in made)
    wrong = [b for b in made if b.state == "differs"]
    if wrong:
        verdict = f"{len(wrong)} of {len(made)} slots are not what the draft was trained on"
    elif made[0].state == "same":
        verdict = "every slot is what the draft was trained on"
    else:
        verdict = "what the draft was trained on is not known"
    fc = ", ".join(text for _, text in chain[0].lines)
    return f"S{parts[1:]}: {verdict}. Concatenated {joined or '(width unknown)'}, fc: {fc}."


def _table(made: Sequence[Block], rank: RankEvidence) -> Table:
    ids = rank.layer_ids
    rows = []
    for b in made:
        origin = ids.slots[b.place].origin if ids and b.served is not None else "-"
        rows.append(
            (
                str(b.place),
                "-" if b.served is None else str(b.served),
                "-" if b.served is None else str(b.served - 1),
                "not served" if b.served is None else layer_name(b.served),
                "-" if b.trained is None else f"{b.trained} (o {b.trained - 1})",
                {"same": "as trained", "differs": "DIFFERS", "unknown": "not known"}[b.state],
                "-" if b.width is None else str(b.width),
                origin,
            )
        )
    header = ("slot", "boundary h", "output id o", "what it is", "trained h", "", "width")
    return Table((*header, "id from"), rows, words(3, 4, 5, 7))


# -- drawing ----------------------------------------------------------------------------------


def _broad(
    made: Sequence[Block], chain: Sequence[Stage], joined: str, layers: int, target: str
) -> Markup:
    height = max(TOP + len(made) * (BLOCK_HEIGHT + GAP) + 12, 262.0)
    d = Drawing(BROAD, height)
    bottom = height - 26
    shift = (bottom - TOP - len(made) * (BLOCK_HEIGHT + GAP) + GAP) / 2
    _target(d, made, layers, 76, 44, bottom, TOP + shift, 192, 230)
    d.text(0, 14, fitted(target, 184, 11.5, bold=True), "t strong", size=11.5)
    d.text(192, 14, "captured, in this order", "t strong")
    middle = TOP + (bottom - TOP) / 2
    d.rect(430, TOP + shift, 6, len(made) * (BLOCK_HEIGHT + GAP) - GAP, "joint", 3)
    d.arrow(440, middle, 542, middle, "flow")
    d.text(490, middle - 21, "concatenated", "t soft", anchor="middle", size=SMALL)
    d.text(490, middle - 7, fitted(joined, 104, SMALL), "t", anchor="middle", size=SMALL)
    places = ((546.0, 178.0), (752.0, 148.0))
    for (x, width), stage in zip(places, chain[:2], strict=True):
        tall = _tall(stage)
        _box(d, x, middle - tall / 2, width, tall, stage)
    d.arrow(726, middle, 748, middle, "flow")
    _own_state(d, 752, 900, middle + _tall(chain[1]) / 2)
    x, width = 928.0, 151.0
    upper, lower = _tall(chain[2]), _tall(chain[3])
    top = middle - (upper + lower + 26) / 2
    _box(d, x, top, width, upper, chain[2])
    _box(d, x, top + upper + 26, width, lower, chain[3])
    d.arrow(902, middle, 924, min(middle, top + upper - 8), "flow")
    d.arrow(x + width / 2, top + upper + 2, x + width / 2, top + upper + 24, "flow")
    return d.markup


def _slim(
    made: Sequence[Block], chain: Sequence[Stage], joined: str, layers: int, target: str
) -> Markup:
    blocks_end = TOP + len(made) * (BLOCK_HEIGHT + GAP)
    talls = [_tall(stage) for stage in chain]
    height = blocks_end + 52 + sum(talls) + 24 * len(talls) + 10
    d = Drawing(SLIM, height)
    d.text(0, 14, fitted(f"target {target}", SLIM, bold=True), "t strong")
    _target(d, made, layers, 68, 24, blocks_end - GAP - 6, TOP, 128, 211)
    d.rect(128, blocks_end - 2, 211, 6, "joint", 3)
    d.text(232, blocks_end + 22, f"concatenated {joined}", "t", anchor="middle", size=SMALL)
    y = blocks_end + 30
    for stage, tall in zip(chain, talls, strict=True):
        d.arrow(232, y, 232, y + 20, "flow")
        _box(d, 128, y + 24, 211, tall, stage)
        if stage is chain[1]:
            d.text(120, y + 24 + tall / 2 - 3, "decode: its", "t soft", anchor="end", size=SMALL)
            d.text(120, y + 37 + tall / 2, "own state back in", "t soft", anchor="end", size=SMALL)
        y += tall + 24
    return d.markup


def _target(
    d: Drawing,
    made: Sequence[Block],
    layers: int,
    x: float,
    width: float,
    bottom: float,
    first: float,
    blocks_x: float,
    blocks_width: float,
) -> None:
    """The stack of layers from the embedding down, the blocks, and lines between them."""
    top = TOP

    def place(boundary: int) -> float:
        return top + 9 + (bottom - top - 9) * min(boundary, layers) / layers

    d.rect(x, top - 9, width, 18, "embed", 3)
    d.rect(x, top + 9, width, bottom - top - 9, "stack", 3)
    if layers <= MOST_LAYER_LINES:
        for boundary in range(1, layers):
            d.line(x, place(boundary), x + width, place(boundary), "layer")
    d.text(x - 6, top + 4, "embedding", "t soft", anchor="end", size=SMALL)
    d.text(x - 6, bottom - 2, f"layer {layers - 1}", "t soft", anchor="end", size=SMALL)
    right = x + width

    def edge(boundary: int) -> float:
        return top if boundary == 0 else place(boundary)

    for b in made:
        y = first + b.place * (BLOCK_HEIGHT + GAP)
        if b.state == "differs" and b.trained is not None:
            d.curve(right, edge(b.trained), blocks_x, y + 46, "wanted")
        if b.served is not None:
            css = "served bad" if b.state == "differs" else "served"
            d.curve(right, edge(b.served), blocks_x, y + 26, css)
    for b in made:
        if b.state == "differs" and b.trained is not None:
            d.diamond(right, edge(b.trained), 7.5, "hollow")
    for b in made:
        y = first + b.place * (BLOCK_HEIGHT + GAP)
        if b.served is not None:
            d.circle(right, edge(b.served), 4, "tap bad" if b.state == "differs" else "tap")
        _block(d, b, blocks_x, y, blocks_width)


def _block(d: Drawing, b: Block, x: float, y: float, width: float) -> None:
    mark: Mark = {"same": "ok", "differs": "bad", "unknown": "unknown"}[b.state]  # type: ignore[assignment]
    d.rect(x, y, width, BLOCK_HEIGHT, f"box {mark}", 5)
    d.text(x + 10, y + 17, f"slot {b.place}", "t soft", size=SMALL)
    if b.width is not None:
        text = f"{b.width} wide"
        d.text(x + width - 10, y + 17, text, "t soft", anchor="end", size=SMALL)
    d.text(x + 10, y + 34, fitted(b.words, width - 20, 13, bold=True), "t strong", size=13)
    d.text(x + 10, y + 52, SIGN[mark], f"t {mark}", size=13)
    d.text(x + 25, y + 52, fitted(b.trained_words, width - 28, SMALL), f"t {mark}", size=SMALL)


def _tall(stage: Stage) -> float:
    return 34 + LINE_HEIGHT * len(stage.lines)


def _box(d: Drawing, x: float, y: float, width: float, height: float, stage: Stage) -> None:
    bad = any(mark == "bad" for mark, _ in stage.lines)
    d.rect(x, y, width, height, "box bad" if bad else "box", 5)
    d.text(x + 10, y + 20, stage.title, "t strong", size=13)
    for row, (mark, text) in enumerate(stage.lines):
        baseline = y + 38 + LINE_HEIGHT * row
        if mark:
            d.text(x + 10, baseline, SIGN[mark], f"t {mark}")
        indent = 23 if mark else 10
        css = f"t {mark}" if mark in ("bad", "unknown") else "t"
        d.text(x + indent, baseline, fitted(text, width - indent - 6, SMALL), css, size=SMALL)


def _own_state(d: Drawing, left: float, right: float, y: float) -> None:
    """The loop of draft decode: the draft's own state comes back in, past ``fc``."""
    d.path([(right - 20, y), (right - 20, y + 14), (left + 20, y + 14), (left + 20, y + 9)], "flow")
    d.arrow(left + 20, y + 10, left + 20, y + 1, "flow")
    middle = (left + right) / 2
    d.text(middle, y + 29, "decode: its own state", "t soft", anchor="middle", size=SMALL)
    d.text(middle, y + 42, "back in, past fc", "t soft", anchor="middle", size=SMALL)
