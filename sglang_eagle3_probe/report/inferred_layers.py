"""What infer-layers found, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import math
from typing import Any

from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.offline.trained_layers.infer_layers import Inference
from sglang_eagle3_probe.offline.trained_layers.layer_serving import Serving
from sglang_eagle3_probe.offline.trained_layers.layer_verdict import LEVEL, Contender, Margin
from sglang_eagle3_probe.report.lines import Line, blank, fields, table, wrapped

FORMAT = 1
SHOWN = 6
"""Contenders in the text; JSON has all."""


def as_json(found: Inference, serving: Serving, release: str) -> str:
    """Deterministic JSON; keys are only ever added within a format."""
    ranking, rows = found.ranking, found.rows
    served = found.served_contender
    return json.dumps(
        {
            "format": FORMAT,
            "answer": found.answer.replace(" ", "_"),
            "exit_code": found.exit_code,
            "decided": ranking.decided,
            "best": _contender(found, ranking.best),
            "possible": [list(found.boundaries_of(c)) for c in ranking.possible],
            "served": {
                "boundaries": list(found.served),
                "ruled_out": found.served_ruled_out,
                "behind": None if served is None else _margin(served.behind),
            },
            "slots": [
                {
                    "slot": slot.number,
                    "boundary": slot.boundary,
                    "output_id": slot.boundary - 1,
                    "certain": ranking.informed and len(slot.possible) == 1,
                    "possible": list(slot.possible),
                    "runner_up": slot.runner_up,
                    "margin": _margin(slot.margin),
                }
                for slot in found.slots
            ],
            "contenders": [_contender(found, c) for c in ranking.contenders],
            "evidence": {
                "requests": rows.requests,
                "rows": found.rows_scored,
                "labels": found.labels,
                "statistic": found.statistic,
                "level": LEVEL,
                "clusters": ranking.clusters,
                "cluster_kind": ranking.cluster_kind,
                "over_chance": _margin(ranking.over_chance),
                "over_shuffled_states": _margin(ranking.over_shuffled),
                "draft_run_as_trained": list(found.changes),
                "target": found.target,
                "left_out": list(rows.left_out),
            },
            "search": {
                "boundaries": list(rows.boundaries),
                "rows": found.search_rows,
                "quick": found.quick,
                "thorough": found.thorough,
                "exact": len(ranking.contenders),
                "whole": found.whole,
            },
            "sglang": {
                "release": release,
                "target_class": rows.info.target_class or None,
                "ids": None if serving.ids is None else list(serving.ids),
                "edit": serving.edit,
                "needs_probe": serving.needs_probe,
                "notes": list(serving.notes),
            },
        },
        indent=2,
        allow_nan=False,
    )


def _contender(found: Inference, contender: Contender) -> dict[str, Any]:
    boundaries = found.boundaries_of(contender)
    return {
        "boundaries": list(boundaries),
        "output_ids": list(conventions.output_ids(boundaries)),
        "score_nats": round(contender.score, 6),
        "accuracy": round(contender.accuracy, 6),
        "behind": _margin(contender.behind),
    }


def _margin(margin: Margin | None) -> dict[str, float | None] | None:
    if margin is None:
        return None
    low, high = margin.interval.low, margin.interval.high
    return {
        "mean_nats": round(margin.mean, 6),
        "low": round(low, 6) if math.isfinite(low) else None,
        "high": round(high, 6) if math.isfinite(high) else None,
    }


# -- text ---------------------------------------------------------------------------------------


def as_lines(found: Inference, serving: Serving, release: str, width: int) -> list[Line]:
    """The answer first, then what it rests on, then what to write."""
    lines = _answer(found, width)
    if found.ranking.informed:
        lines += [blank(), *_slots(found)]
    lines += [blank(), *_contenders(found)]
    lines += [blank(), *_evidence(found, width)]
    if found.ranking.informed:
        lines += [blank(), *_serving(found, serving, release, width)]
    return lines


def _words(found: Inference, contender: Contender) -> str:
    boundaries = found.boundaries_of(contender)
    return f"boundaries {list(boundaries)} (output ids {list(conventions.output_ids(boundaries))})"


_NO_BETTER = (
    "this draft predicts its target no better than a guess by token frequency, whatever boundaries "
    "it gets. It is not trained, does not belong to this target, or lacks its vocabulary map. "
    "Fix: check the draft with sglang-eagle3-probe doctor."
)
_STATES_DO_NOT_MATTER = (
    "this draft predicts as well from the states of other positions, so they do not matter to it. "
    "Its fc is not trained, or does not belong to this target. "
    "Fix: check that fc.weight is the one that was trained."
)


def _answer(found: Inference, width: int) -> list[Line]:
    ranking = found.ranking
    for control, than, otherwise in (
        (ranking.over_chance, "a guess by token frequency", _NO_BETTER),
        (ranking.over_shuffled, "itself with states of other positions", _STATES_DO_NOT_MATTER),
    ):
        if control.vague:
            what = (
                f"too little was captured to tell whether this draft beats {than}: by "
                f"{control.mean:.2f} nats a token, but anything from {control.interval.low:.2f} to "
                f"{control.interval.high:.2f} is possible. Fix: capture more requests."
            )
            return wrapped("undecided: ", what, width, "bold magenta")
        if not control.clear:
            return wrapped("undecided: ", otherwise, width, "bold magenta")
    best = _words(found, ranking.best)
    if ranking.decided:
        lines = wrapped("decided: ", f"trained on {best}", width, "bold green")
    else:
        possible = [str(list(found.boundaries_of(c))) for c in ranking.possible]
        lines = wrapped(
            "undecided: ",
            f"best with {best}, but the data do not rule out {', '.join(possible[1:SHOWN])}"
            + (f" and {len(possible) - SHOWN} more" if len(possible) > SHOWN else "")
            + ". Fix: capture more requests.",
            width,
            "bold magenta",
        )
    served = list(found.served)
    if found.served == found.best:
        return lines + wrapped("served:  ", f"boundaries {served}, the same", width, "bold")
    contender = found.served_contender
    if contender is None or contender.behind is None:
        text = f"boundaries {served}, which this draft cannot be run with here"
    else:
        text = f"boundaries {served}: {_worse(contender.behind)}, accuracy " + (
            f"{contender.accuracy:.3f} instead of {ranking.best.accuracy:.3f}"
        )
    style = "bold red" if found.served_ruled_out else "bold"
    return lines + wrapped("served:  ", text, width, style)


def _worse(margin: Margin) -> str:
    return f"{margin.mean:.4f} nats a token worse ({_interval(margin)})"


def _interval(margin: Margin) -> str:
    low, high = margin.interval.low, margin.interval.high
    if not math.isfinite(low):
        return "no interval: one group of rows only"
    return f"{LEVEL:.0%} interval {low:.4f} to {high:.4f}"


def _slots(found: Inference) -> list[Line]:
    rows = []
    for slot in found.slots:
        rival = "-" if slot.runner_up is None else str(slot.runner_up)
        certain = "yes" if len(slot.possible) == 1 else f"no, {list(slot.possible)}"
        worse = span = "-"
        if slot.margin is not None:
            worse = f"{slot.margin.mean:.4f}"
            span = f"{slot.margin.interval.low:.4f} to {slot.margin.interval.high:.4f}"
        name = f"{slot.boundary} (embedding)" if slot.boundary == 0 else str(slot.boundary)
        rows.append((str(slot.number), name, str(slot.boundary - 1), certain, rival, worse, span))
    header = (
        "slot",
        "boundary h",
        "output id o",
        "certain",
        "runner-up h",
        "worse by, nats",
        f"{LEVEL:.0%} interval",
    )
    return table(header, rows)


def _contenders(found: Inference) -> list[Line]:
    rows = []
    served = found.served_contender
    shown = list(found.ranking.contenders[:SHOWN])
    if served is not None and served not in shown:
        shown.append(served)
    for contender in shown:
        behind = contender.behind
        rows.append(
            (
                str(list(found.boundaries_of(contender))),
                f"{contender.score:.4f}",
                f"{contender.accuracy:.3f}",
                "-" if behind is None else f"{behind.mean:.4f}",
                "-"
                if behind is None
                else f"{behind.interval.low:.4f} to {behind.interval.high:.4f}",
                "served" if contender is served else "",
            )
        )
    header = ("boundaries", "score, nats", "accuracy", "worse by", f"{LEVEL:.0%} interval", "")
    return table(header, rows)


def _evidence(found: Inference, width: int) -> list[Line]:
    ranking = found.ranking
    rows = [
        ("  judged by", found.statistic),
        ("  labels", found.labels),
        (
            "  data",
            f"{found.rows_scored} rows of {found.rows.requests} requests; intervals over "
            f"{ranking.clusters} {ranking.cluster_kind}",
        ),
        (
            "  searched",
            f"{len(found.rows.boundaries)} boundaries, {found.whole} combinations: {found.quick} "
            f"scored on few rows, {found.thorough} on {found.search_rows}, "
            f"{len(ranking.contenders)} on all",
        ),
        (
            "  control",
            f"better than a guess by frequency by {ranking.over_chance.mean:.2f} nats, than with "
            f"states of other positions by {ranking.over_shuffled.mean:.2f}",
        ),
    ]
    if found.changes:
        rows.append(("  draft run", "as its files say it was trained: " + ", ".join(found.changes)))
    rows += [("  left out", text) for text in found.rows.left_out]
    return fields(rows, width)


def _serving(found: Inference, serving: Serving, release: str, width: int) -> list[Line]:
    name = found.rows.info.target_class or "the target"
    if serving.edit is None:
        lines = wrapped("  ", f"No list for {name} of SGLang {release}: {serving.notes[0]}", width)
        rest = serving.notes[1:]
    else:
        lines = wrapped(
            f"  For {name} of SGLang {release}: ",
            serving.edit + (" with --enable-probe" if serving.needs_probe else ""),
            width,
            "bold",
        )
        rest = serving.notes
    for note in rest:
        lines += wrapped("  - ", note, width)
    return lines
