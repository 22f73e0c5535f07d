"""Why the acceptance is what it is, and what it is worth: sections of the terminal report."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from sglang_eagle3_probe.analysis.anatomy import CAUSES, Anatomy
from sglang_eagle3_probe.analysis.economics import BatchEconomics, Economics, Option
from sglang_eagle3_probe.analysis.prediction import Comparison, Curve
from sglang_eagle3_probe.analysis.reference_bank import Found, Reference
from sglang_eagle3_probe.analysis.slices import Slices
from sglang_eagle3_probe.report.wiring import table

CAUSE_WORDS = {
    "out_of_vocab": "not in draft vocabulary",
    "unexpanded": "branch not gone on with",
    "pruned": "in topk, not in tree",
    "ranked_2": "draft had it second",
    "ranked_3_4": "third or fourth",
    "ranked_5_8": "fifth to eighth",
    "ranked_more": "further down",
    "sampling": "lost to sampling",
    "ended": "request had ended",
    "unknown": "not recorded",
}
MOST_POSITIONS = 6
MOST_SLICES = 6
MOST_BATCHES = 4


def refusals(parts: Anatomy) -> RenderableType | None:
    """Per position, what the rounds that got there were lost to. ``None`` when nothing tells."""
    if not parts.refused or not parts.explained:
        return None
    shown = [
        (position, {share.cause: share for share in shares}, shares[0].reached, shares[0].refused)
        for position, shares in enumerate(parts.positions)
        if shares
    ][:MOST_POSITIONS]
    result = table()
    result.add_column("of the rounds that got to draft", no_wrap=True)
    for position, *_ in shown:
        result.add_column(str(position), justify="right", no_wrap=True)
    result.add_column("all refusals", justify="right", no_wrap=True)
    right = [f"{1 - refused / reached:.1%}" for _, _, reached, refused in shown]
    result.add_row("right", *right, "")
    for cause in CAUSES:
        if not parts.of(cause).count:
            continue
        cells = [f"{by[cause].lost:.1%}" if cause in by else "-" for _, by, _, _ in shown]
        result.add_row(CAUSE_WORDS[cause], *cells, f"{parts.of(cause).share:.0%}")
    notes = []
    if parts.not_looked_at:
        notes.append(looked_at(parts))
    if len(parts.positions) > len(shown):
        notes.append(f"later positions are in --json ({len(parts.positions)} in all)")
    if parts.unjoined:
        notes.append(f"{parts.unjoined} entries of refusals met no round")
    return Group(result, *(Text(note, style="dim") for note in notes))


def looked_at(parts: Anatomy) -> str:
    """How many rounds the causes are of."""
    whole = parts.rounds + parts.not_looked_at
    return f"{parts.rounds} of {whole} rounds were looked at (SGLANG_EAGLE3_PROBE_REFUSAL_EVERY)"


def slices(found: tuple[Slices, ...]) -> list[tuple[str, str]]:
    """One line per dimension in which the run has several buckets: accept length by bucket."""
    lines = []
    for dimension in found:
        if len(dimension.slices) < 2:
            continue
        shown = dimension.slices
        left_out = len(shown) - MOST_SLICES
        if left_out > 0:  # both ends, where the differences are
            shown = shown[: MOST_SLICES - 1] + shown[-1:]
        cells = [f"{s.label}: {s.acceptance.accept_length or 0.0:.2f}" for s in shown]
        if left_out > 0:
            cells.insert(-1, f"({left_out} more)")
        lines.append((dimension.title, " | ".join(cells)))
    return lines


def prediction(compared: Comparison) -> RenderableType:
    """Promise and measurement side by side."""
    result = table()
    for name in ("draft", "predicted", "measured", "predicted - measured [95 %]"):
        result.add_column(name, justify="right" if name == "draft" else "left", no_wrap=True)
    result.add_column("given the ones before", no_wrap=True)
    given = {gap.position: gap for gap in compared.conditional}
    for gap in compared.unconditional:
        its = given.get(gap.position)
        result.add_row(
            str(gap.position),
            f"{gap.predicted:.3f}",
            f"{gap.measured.share or 0.0:.3f}",
            f"{gap.gap:+.3f} [{gap.interval.low:+.3f}, {gap.interval.high:+.3f}]",
            "-" if its is None else f"{its.predicted:.3f} - {its.measured.share or 0.0:.3f}",
        )
    notes = [_lengths(compared)]
    if compared.greedy_only:
        notes.append(f"greedy rounds alone; {compared.sampling_share or 0.0:.0%} were sampled")
    elif compared.sampling_share:
        notes.append(
            f"{compared.sampling_share:.0%} of the rounds were sampled; accuracies are about argmax"
        )
    if compared.tree:
        notes.append("measured on trees, which reach at least what a chain would")
    return Group(
        result,
        *(Text(note, style="dim") for note in notes),
        *([Text(f"Points to: {compared.suggests}")] if compared.suggests else []),
    )


def _lengths(compared: Comparison) -> str:
    def length(curve: Curve | None) -> str:
        return "" if curve is None else f"{curve.length(compared.steps):.2f} by {curve.reading}"

    given = compared.prediction
    readings = ", ".join(filter(None, (length(given.by_product), length(given.by_survival))))
    return (
        f"accept length {readings}; measured {compared.measured_length:.2f} "
        f"({given.source}; the table is by {given.expected.reading})"
    )


def economics(worth: Economics) -> list[tuple[str, str]]:
    """What a round costs, in numbers that add up."""
    main = worth.main
    if main is None:
        return []
    lines = [(f"batch size {main.batch_size}", _now(main, worth))]
    if main.parts:
        lines.append(("a round costs", _parts(main)))
    lines.append(("break-even", _break_even(main)))
    lines += [("fastest steps", text) for text in (_best(main),) if text]
    others = worth.batches[1 : 1 + MOST_BATCHES]
    lines += [(f"batch size {batch.batch_size}", _now(batch, worth)) for batch in others]
    if worth.overlapped:
        lines.append(("mind", "phases of different rounds overlap, so parts exceed the round"))
    if worth.not_timed:
        lines.append(("mind", f"{worth.not_timed} pieces of work went untimed"))
    return lines


def _now(batch: BatchEconomics, worth: Economics) -> str:
    how = f"{worth.clock} clock" if batch.basis == "phases" else "from round to round"
    text = (
        f"{batch.accept_length:.2f} tokens in {batch.round_ms:.2f} ms ({how}) = "
        f"{batch.tokens_per_s:.1f} tokens/s per request"
    )
    if batch.plain_tokens_per_s is not None:
        text += (
            f"; plain {batch.plain_tokens_per_s:.1f} ({worth.plain_source}): "
            f"{batch.speed_up or 0.0:.2f} times"
        )
    return text


def _parts(batch: BatchEconomics) -> str:
    cells = []
    for part in batch.parts:
        text = f"{part.name} {part.ms:.2f} ms, {part.share:.0%}"
        if part.steps is not None:
            text = f"{part.name} {part.steps:.2f} ({part.ms:.2f} ms, {part.share:.0%})"
        cells.append(text)
    total = f"{batch.break_even:.2f} plain steps: " if batch.break_even is not None else ""
    text = total + " + ".join(cells)
    if batch.draft_step_ms is not None:
        text += f"; one draft forward {batch.draft_step_ms:.2f} ms"
    return text


def _break_even(batch: BatchEconomics) -> str:
    if batch.break_even is None:
        if batch.least_break_even is None:
            return "not known: no plain decode step was timed; give --plain TOKENS_PER_S or DIR"
        return (
            f"accept length {batch.least_break_even:.2f} or more (a plain step costs at most a "
            "verify forward; --plain TOKENS_PER_S or DIR gives the number)"
        )
    text = f"accept length {batch.break_even:.2f}; now {batch.accept_length:.2f}"
    limit = batch.speed_up_interval
    text += f", speed-up {batch.speed_up or 0.0:.2f}"
    text += f" [{limit.low:.2f}, {limit.high:.2f}]" if limit is not None else ""
    if batch.predicted_speed_up is not None:
        text += f"; at the predicted accept length {batch.predicted_speed_up:.2f}"
    return text


def _best(batch: BatchEconomics) -> str:
    best, beyond = batch.best, batch.best_extrapolated
    if best is None or len(batch.options) < 2:
        return ""
    text = f"{_option(best)}, "
    text += {
        "measured": "the setting in force",
        "shorter": f"reckoned with the verify cost of {batch.setting[2]} tokens",
    }.get(best.status, "")
    if beyond is not None:
        text += (
            f"; extrapolated, so to be measured: {_option(beyond)} (last rate repeated, verify "
            "cost as now)"
        )
    return text


def _option(option: Option) -> str:
    return (
        f"{option.steps}/{option.topk}/{option.draft_tokens} (steps/topk/draft tokens): accept "
        f"length {option.accept_length:.2f}, {option.tokens_per_s:.1f} tokens/s"
    )


def references(found: Found, accept_length: float | None) -> str:
    """What others published under the same setting."""

    def one(reference: Reference) -> str:
        return f"{reference.accept_length:.2f} ({reference.benchmark}, {reference.draft})"

    ceiling = found.least.ceiling
    targets = ", ".join(dict.fromkeys(r.target for r in found.references))
    if found.how == "architecture":
        targets = f"other models of this class ({targets})"
    text = f"{one(found.least)} to {one(found.greatest)} of at most {ceiling} for {targets}"
    if accept_length is not None:
        text += f"; here {accept_length:.2f}, {accept_length / ceiling:.0%} of it"
    sources = ", ".join(dict.fromkeys(r.source for r in (found.least, found.greatest)))
    return f"{text}. {sources}"
