"""What a verify round costs and gives, against plain decoding and other numbers of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from sglang_eagle3_probe.analysis.economics import BatchEconomics, Economics, Option
from sglang_eagle3_probe.report.html.figure import Missing, Shown, Table, drawn, words
from sglang_eagle3_probe.report.html.scale import Scale, tick_text
from sglang_eagle3_probe.report.html.svg import SMALL, Drawing, fitted, legend, legend_height
from sglang_eagle3_probe.report.html.svg import text_width as wide

TITLE = "What a round costs"
STATUS = {
    "measured": "the setting in force",
    "shorter": "reckoned with today's verify cost",
    "extrapolated": "extrapolated: last rate repeated, to be measured",
}
MOST_OPTIONS = 10


def cost_figure(name: str, worth: Economics) -> Shown:
    """Parts of a round, in milliseconds, for each batch size that was timed."""
    if not worth.batches:
        return Missing(
            name,
            TITLE,
            "No round could be timed: too few rounds follow each other closely. Send requests for "
            "a minute or more.",
        )
    timed = [batch for batch in worth.batches if batch.parts]
    if not timed:
        return Missing(
            name,
            TITLE,
            "Only the time from round to round is known, not its parts. Traces of a server that "
            "runs this version of the probe hold phase times.",
        )
    main = timed[0]
    says = (
        f"Milliseconds of a verify round by phase ({worth.clock} clock). At batch size "
        f"{main.batch_size} a round takes {main.round_ms:.2f} ms and gives "
        f"{main.accept_length:.2f} tokens per request."
    )
    notes = []
    if worth.overlapped:
        notes.append("Phases of different rounds overlap, so parts exceed the round.")
    if worth.not_timed:
        notes.append(f"{worth.not_timed} pieces of work went untimed.")
    if main.draft_step_ms is not None:
        notes.append(f"One draft forward takes {main.draft_step_ms:.2f} ms.")
    return drawn(name, TITLE, says, _parts(timed[:6]), _parts_table(timed), notes)


def _parts_table(timed: Sequence[BatchEconomics]) -> Table:
    rows = [
        (
            str(batch.batch_size),
            part.name,
            f"{part.ms:.2f}",
            f"{part.share:.0%}",
            "-" if part.steps is None else f"{part.steps:.2f}",
        )
        for batch in timed
        for part in batch.parts
    ]
    return Table(("batch size", "phase", "ms", "of the round", "plain steps"), rows, words(1))


def _parts(timed: Sequence[BatchEconomics]) -> Callable[[float], Markup]:
    names = list(dict.fromkeys(part.name for batch in timed for part in batch.parts))
    css = {name: f"s{place % 5}" for place, name in enumerate(names)}

    def draw(width: float) -> Markup:
        entries = [("box", css[name], name) for name in names]
        if any(_plain_ms(batch) is not None for batch in timed):
            entries.append(("line", "mark", "plain decoding, as many tokens"))
        top = legend_height(entries, width) + 8
        d = Drawing(width, top + 34 * len(timed) + 22)
        legend(d, entries, 0, 10, width)
        most = max(max(b.round_ms, sum(p.ms for p in b.parts), _plain_ms(b) or 0.0) for b in timed)
        x = Scale(0, most, 74, width - 4)
        for place, batch in enumerate(timed):
            y = top + 34 * place
            d.text(0, y + 16, fitted(f"batch {batch.batch_size}", 70), "t")
            at = 0.0
            for part in batch.parts:
                left, right = x(at), x(at + part.ms)
                d.rect(left, y, right - left - 1, 24, css[part.name])
                label = f"{part.ms:.2f}"
                if right - left > wide(label, SMALL) + 6:
                    middle = (left + right) / 2
                    on = f"on {css[part.name]}"
                    d.text(middle, y + 16, label, on, anchor="middle", size=SMALL)
                at += part.ms
            plain = _plain_ms(batch)
            if plain is not None:
                d.line(x(plain), y - 4, x(plain), y + 28, "mark")
        bottom = top + 34 * len(timed)
        for tick in x.ticks(4 if width > 400 else 3):
            d.text(x(tick), bottom + 12, tick_text(tick), "t soft", anchor="middle", size=SMALL)
        d.text(0, bottom + 12, "ms", "t soft", size=SMALL)
        return d.markup

    return draw


def _plain_ms(batch: BatchEconomics) -> float | None:
    """What plain decoding would take for the tokens of a round."""
    return None if batch.plain_ms is None else batch.plain_ms * batch.accept_length


# -- speeds -----------------------------------------------------------------------------------


def speed_figure(name: str, worth: Economics) -> Shown:
    """Tokens per second of one request: now, plain, and with other numbers of steps."""
    title = "What it gives"
    main = worth.main
    if main is None:
        return Missing(name, title, "Speeds need round times, and no round could be timed.")
    bars = [("plain decoding", main.plain_tokens_per_s, "s4")] if main.plain_tokens_per_s else []
    options = sorted(main.options, key=lambda o: (o.steps, o.topk))[:MOST_OPTIONS]
    if options:
        bars += [(_words(o), o.tokens_per_s, _css(o)) for o in options]
    else:
        bars.append(("speculation now", main.tokens_per_s, "s0"))
    says = f"Tokens per second of one request at batch size {main.batch_size}: now "
    says += f"{main.tokens_per_s:.1f}"
    notes = []
    if main.plain_tokens_per_s is not None:
        says += f", plain decoding {main.plain_tokens_per_s:.1f} ({worth.plain_source})"
        says += f"; speed-up {main.speed_up or 0.0:.2f}"
        limit = main.speed_up_interval
        says += f" [{limit.low:.2f}, {limit.high:.2f}]" if limit is not None else ""
        says += f". It pays from accept length {main.break_even or 0.0:.2f} on; now "
        says += f"{main.accept_length:.2f}."
        if main.predicted_speed_up is not None:
            notes.append(f"At the promised accept length: {main.predicted_speed_up:.2f} times.")
    else:
        says += ". What plain decoding gives is not known."
        least = main.least_break_even
        if least is not None:
            notes.append(
                f"It pays from an accept length of {least:.2f} or more on: a plain step costs at "
                "most a verify forward."
            )
        notes.append(
            "The break-even length itself needs the speed without speculation: add --plain "
            "TOKENS_PER_S, or --plain DIR with the trace of a run without speculation."
        )
    if len(main.options) < 2:
        notes.append("Other numbers of steps need the times of the phases to be reckoned.")
    table = Table(
        ("setting", "tokens/s", "accept length", "speed-up", "known how"),
        [
            (
                f"{o.steps}/{o.topk}/{o.draft_tokens}",
                f"{o.tokens_per_s:.1f}",
                f"{o.accept_length:.2f}",
                "-" if o.speed_up is None else f"{o.speed_up:.2f}",
                STATUS[o.status],
            )
            for o in options
        ]
        or [("now", f"{main.tokens_per_s:.1f}", f"{main.accept_length:.2f}", "-", "measured")],
        words(0, 4),
    )
    shown = [(label, value, css) for label, value, css in bars if value is not None]
    return drawn(name, title, says, _speeds(shown), table, notes)


def _words(option: Option) -> str:
    text = f"{option.steps} step{'s' * (option.steps != 1)}"
    text += f", topk {option.topk}" if option.topk > 1 else ""
    return text + (", now" if option.status == "measured" else "")


def _css(option: Option) -> str:
    return {"measured": "s0", "shorter": "s0 weak", "extrapolated": "s0 guess"}[option.status]


def _speeds(bars: Sequence[tuple[str, float, str]]) -> Callable[[float], Markup]:
    def draw(width: float) -> Markup:
        entries = [("box", "s0", "in force")]
        kinds = {css for _, _, css in bars}
        if "s0 weak" in kinds:
            entries.append(("box", "s0 weak", "reckoned"))
        if "s0 guess" in kinds:
            entries.append(("box", "s0 guess", "extrapolated"))
        if "s4" in kinds:
            entries.append(("box", "s4", "plain decoding"))
        top = legend_height(entries, width) + 8
        d = Drawing(width, top + 26 * len(bars) + 4)
        legend(d, entries, 0, 10, width)
        x = Scale(0, max(value for _, value, _ in bars) or 1.0, 112, width - 52)
        for place, (label, value, css) in enumerate(bars):
            y = top + 26 * place
            d.text(0, y + 14, fitted(label, 108), "t")
            d.rect(x.start, y, x(value) - x.start, 19, css, 2)
            d.text(x(value) + 6, y + 14, f"{value:.1f}", "t")
        return d.markup

    return draw


def batches_table(worth: Economics) -> Table:
    """Every batch size whose rounds could be timed."""
    return Table(
        ("batch size", "setting", "rounds", "accept length", "ms per round", "tokens/s", "plain",
         "break-even", "speed-up", "timed by"),
        [
            (
                str(b.batch_size),
                "/".join(map(str, b.setting)),
                str(b.rounds),
                f"{b.accept_length:.2f}",
                f"{b.round_ms:.2f}",
                f"{b.tokens_per_s:.1f}",
                _or_dash(b.plain_tokens_per_s, ".1f"),
                _or_dash(b.break_even, ".2f"),
                _or_dash(b.speed_up, ".2f"),
                "phases" if b.basis == "phases" else "round to round",
            )
            for b in worth.batches
        ],
        words(1, 9),
    )  # fmt: skip


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
