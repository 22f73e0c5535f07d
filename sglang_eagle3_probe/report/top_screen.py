"""One frame of ``top``: what a running server accepts and refuses, for a terminal of any size."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sglang_eagle3_probe.analysis.acceptance import Acceptance, Rate, from_outcomes
from sglang_eagle3_probe.analysis.anatomy import CAUSES
from sglang_eagle3_probe.analysis.live import WINDOW_S, LiveRank, LiveRun
from sglang_eagle3_probe.report.curve import Bar
from sglang_eagle3_probe.report.lines import clean
from sglang_eagle3_probe.report.sparkline import Sparkline
from sglang_eagle3_probe.report.understanding import CAUSE_WORDS

QUIET_S = 15.0
"""A server without a word for this long is called quiet: progress is written every 5 s while
records flow."""
WIDE = 75
"""Columns for which everything is meant; in fewer, what can be done without is left out."""
FIXED_LINES = 8
"""Title, subject, ids, accept length, two headings, and what separates them."""


@dataclass(frozen=True)
class Frame:
    """What a frame is made of.

    Attributes:
        notes: lines about the reading itself, such as damaged lines or older runs.
        now_s: seconds since the epoch.
    """

    place: str
    run: LiveRun
    notes: Sequence[str]
    now_s: float
    interactive: bool = True


def waiting(place: str, reason: str, *, interactive: bool = True) -> RenderableType:
    """Nothing to show yet, and what would change that."""
    parts = [Text(f"sglang-eagle3-probe top  {clean(place)}", style="bold"), Text()]
    parts += [Text(f"waiting: {clean(reason)}")]
    if interactive:
        parts += [Text(), Text("q quits", style="dim")]
    return Group(*parts)


def render(frame: Frame, width: int, height: int) -> RenderableType:
    """The frame, cut to what fits: positions first, then ranks, then causes."""
    run, start_s = frame.run, frame.now_s - WINDOW_S
    lately = from_outcomes(run.outcomes(start_s), requests=0)
    whole = from_outcomes(run.outcomes(), requests=0)
    causes_lately, causes = run.causes(start_s), run.causes()
    ranks = run.in_order()
    kinds = sum(1 for cause in CAUSES if causes[cause])
    losses = _losses(run)
    room = share_out(
        height - FIXED_LINES - len(losses) - len(frame.notes),
        Room(len(whole.unconditional), len(ranks), kinds),
    )
    parts: list[RenderableType] = [
        *_head(frame, width),
        Text(),
        _accept_lengths(lately, whole),
        _curve(lately, whole, room.positions, width),
        Text(),
        *_anatomy(causes_lately, causes, whole.rounds - run.not_looked_at(), room.causes),
        _ranks(ranks, room.ranks, frame.now_s, width),
        *losses,
        *(
            Text(clean(note), style="yellow", no_wrap=True, overflow="ellipsis")
            for note in frame.notes
        ),
    ]
    return Group(*parts)


class Room(NamedTuple):
    """Lines of the three tables, without their headings."""

    positions: int
    ranks: int
    causes: int


def share_out(lines: int, wanted: Room) -> Room:
    """What each table gets of these lines: positions come first, but each table gets something.

    The causes have a heading that goes with them; the other headings are always there.
    """
    kept = min(wanted.causes, 2) + 1 if wanted.causes else 0
    positions = max(1, min(wanted.positions, lines - min(wanted.ranks, 3) - kept))
    lines -= positions
    ranks = max(1, min(wanted.ranks, lines - kept))
    return Room(positions, ranks, max(0, min(wanted.causes, lines - ranks - 1)))


# -- what runs ----------------------------------------------------------------------------------


def _head(frame: Frame, width: int) -> list[Text]:
    ranks = frame.run.in_order()
    header = next((r.header for r in ranks if r.header), None)
    arguments = next((r.arguments for r in ranks if r.arguments), None)
    clock = time.strftime("%H:%M:%S", time.localtime(frame.now_s))
    keys = "  q quits" if frame.interactive else ""
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f"{clock}{keys}  ", "dim")
    title.append("sglang-eagle3-probe top  ", "bold")
    title.append(clean(frame.place))
    subject = Text(no_wrap=True, overflow="ellipsis", style="dim")
    if header is not None:
        began = ago(frame.now_s - header.wall_s)
        subject.append(f"SGLang {clean(header.sglang_version)}, level {clean(header.level)}, ")
        subject.append(f"up {began}, ")
    if arguments is not None:
        force = arguments.in_force
        subject.append(
            f"steps {clean(force.get('speculative_num_steps'))} "
            f"topk {clean(force.get('speculative_eagle_topk'))}, "
            f"{clean(arguments.target_architecture)} + "
            f"{clean(arguments.draft_architecture or 'no draft')}"
        )
    return [title, subject, _ids(ranks)]


def _ids(ranks: Sequence[LiveRank]) -> Text:
    record = next((r.layer_ids for r in ranks if r.layer_ids), None)
    line = Text(no_wrap=True, overflow="ellipsis")
    if record is None:
        return line.append("layer ids not seen yet", "dim")
    ids = [slot.output_id for slot in record.slots]
    line.append(f"captures output ids o {ids} (h {[s.boundary for s in record.slots]})")
    if record.trained_output_ids is None:
        return line
    if record.trained_output_ids == ids:
        return line.append(", as trained", "green")
    return line.append(f", BUT TRAINED ON {record.trained_output_ids}", "bold red")


# -- acceptance ---------------------------------------------------------------------------------


def _accept_lengths(lately: Acceptance, whole: Acceptance) -> Text:
    line = Text("accept length  ", no_wrap=True, overflow="ellipsis")
    line.append(_length(lately), "bold")
    line.append(f" last minute ({lately.rounds} rounds), ")
    line.append(_length(whole), "bold")
    return line.append(f" since start ({whole.rounds})")


def _length(seen: Acceptance) -> str:
    return "-" if seen.accept_length is None else f"{seen.accept_length:.2f}"


def _curve(lately: Acceptance, whole: Acceptance, lines: int, width: int) -> RenderableType:
    """One line a position; the last says how many more there are, if there are."""
    deepest = len(whole.unconditional)
    if not deepest:
        return Text("no verify round yet", style="dim")
    wide, grid = width >= WIDE, _table()
    grid.add_column("draft", no_wrap=True, justify="right")
    grid.add_column("all right, last minute" if wide else "all right", no_wrap=True)
    names = ("rate", "given before", "since start", "given before")
    for name in names if wide else names[::2]:
        grid.add_column(name, no_wrap=True, justify="right")
    recent = {r.position: r for r in lately.unconditional}
    given = {r.position: r for r in lately.conditional}
    shown = _but_one(deepest, lines)
    for k in range(shown):
        now = recent.get(k)
        cells = [
            _share(now),
            _share(given.get(k)),
            _share(whole.unconditional[k]),
            _share(whole.conditional[k]),
        ]
        bar = Bar((now.share if now else None) or 0.0, 20 if wide else 8)
        grid.add_row(str(k), bar, *(cells if wide else cells[::2]))
    if shown < deepest and lines > 1:
        grid.add_row("", f"{deepest - shown} more")
    return grid


def _but_one(wanted: int, lines: int) -> int:
    """How many of ``wanted`` lines to show when the last line must tell of the rest."""
    return wanted if wanted <= lines else max(1, lines - 1)


def _share(rate: Rate | None) -> str:
    return "-" if rate is None or rate.share is None else f"{rate.share:.3f}"


def _anatomy(
    lately: Counter[str], whole: Counter[str], rounds: int, most: int
) -> list[RenderableType]:
    """Shares of the refusals by cause, the commonest ones; nothing when there is no room."""
    refused = sum(whole.values())
    if not refused or most < 1:
        return []
    grid = _table()
    grid.add_column(f"first refused drafts ({refused} in {rounds} rounds)", no_wrap=True)
    grid.add_column("last minute", justify="right", no_wrap=True)
    grid.add_column("since start", justify="right", no_wrap=True)
    common = sorted((c for c in CAUSES if whole[c]), key=lambda c: -whole[c])[:most]
    for cause in common:
        grid.add_row(CAUSE_WORDS[cause], _percent(cause, lately), _percent(cause, whole))
    return [grid]


def _percent(cause: str, counts: Counter[str]) -> str:
    refused = sum(counts.values())
    return f"{counts[cause] / refused:.0%}" if refused else "-"


# -- ranks --------------------------------------------------------------------------------------


def _ranks(ranks: Sequence[LiveRank], most: int, now_s: float, width: int) -> RenderableType:
    grid = _table()
    for name in ("rank", "tokens/s", "rounds/s"):
        grid.add_column(name, no_wrap=True, justify="left" if name == "rank" else "right")
    wide = width >= WIDE
    if wide:
        grid.add_column("tokens/s, last minute", no_wrap=True)
    grid.add_column("state", no_wrap=True, overflow="ellipsis")
    shown = _but_one(len(ranks), most)
    for rank in ranks[:shown]:
        tokens, rounds = rank.rates(now_s)
        cells: list[RenderableType] = [_label(rank), f"{tokens:.1f}", f"{rounds:.1f}"]
        if wide:
            points = [(float(n), False) for n in rank.tokens_by_second(now_s)]
            cells.append(Sparkline(points, 24))
        grid.add_row(*cells, state(rank, now_s))
    if shown < len(ranks) and most > 1:
        grid.add_row(f"{len(ranks) - shown} more")
    return grid


def _label(rank: LiveRank) -> str:
    words = rank.name.split("-")
    return clean(" ".join(w for w in words if w != "probe" and not w.startswith("pid")))


def state(rank: LiveRank, now_s: float) -> Text:
    """Whether the process still writes."""
    if rank.footer is not None:
        return Text(f"ended: {clean(rank.footer.reason)}", style="yellow")
    silent_s = now_s - rank.last_wall_s
    if silent_s > QUIET_S:
        return Text(f"quiet {ago(silent_s)}", style="dim")
    return Text("running", style="green")


def ago(seconds: float) -> str:
    """``3 min``; never negative, clocks of two machines differ."""
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


# -- the probe itself ---------------------------------------------------------------------------


def _losses(run: LiveRun) -> list[Text]:
    """One line; another one when something of ours raised."""
    words: list[str] = []
    dropped: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    errors = rotated = 0
    for rank in run.in_order():
        dropped.update(rank.losses.dropped_records)
        missed.update(rank.losses.missed)
        errors += rank.losses.write_errors
        rotated += rank.losses.rotated_away_records
    if dropped:
        kinds = ", ".join(f"{clean(kind)} {n}" for kind, n in dropped.most_common(3))
        words.append(f"{sum(dropped.values())} records lost ({kinds})")
    if missed:
        kinds = ", ".join(f"{clean(kind)} {n}" for kind, n in missed.most_common(3))
        words.append(f"{sum(missed.values())} not looked at ({kinds})")
    if errors:
        words.append(f"{errors} write errors")
    line = Text("losses: ", style="dim", no_wrap=True, overflow="ellipsis")
    line.append("; ".join(words) or "none", "bold red" if words else "")
    if rotated:
        line.append(f"; {rotated} records rotated away")
    faults = _faults(run)
    return [line] if not faults else [line, _faults_line(faults)]


def _faults_line(faults: list[str]) -> Text:
    line = Text("probe faults: ", style="dim", no_wrap=True, overflow="ellipsis")
    return line.append("; ".join(faults), "bold red")


def _faults(run: LiveRun) -> list[str]:
    counts: Counter[str] = Counter()
    off: set[str] = set()
    for rank in run.in_order():
        for site in rank.losses.faults.keys() | rank.faults.keys():
            fault = rank.faults.get(site)
            counts[site] += max(rank.losses.faults.get(site, 0), fault.count if fault else 0)
            if site in rank.losses.disabled_sites or (fault and fault.disabled):
                off.add(site)
    return [
        f"tap {clean(site)} raised {n} times{' and is off' if site in off else ''}"
        for site, n in counts.most_common()
    ]


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
