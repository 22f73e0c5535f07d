"""Renders the page. Every value of a trace passes the template engine's escaping."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sglang_eagle3_probe import __version__
from sglang_eagle3_probe.report.html.comparison import Comparison, compare
from sglang_eagle3_probe.report.html.verdict_view import RunView, run_view
from sglang_eagle3_probe.report.lines import clean
from sglang_eagle3_probe.report.verdict import Report


def page(reports: Sequence[tuple[str, Report]]) -> str:
    """One HTML document of one run, or of several with a comparison on top.

    reports: (name of the run, report), at least one.
    """
    several = len(reports) > 1
    runs = [
        run_view(report, name, f"run{place}-" if several else "")
        for place, (name, report) in enumerate(reports, 1)
    ]
    return render(runs, compare(reports) if several else None)


def render(runs: Sequence[RunView], comparison: Comparison | None) -> str:
    """The document of runs made ready."""
    engine = _engine()
    script = _source(engine, "page.js")
    return engine.get_template("page.html").render(
        runs=runs,
        comparison=comparison,
        style=Markup(_source(engine, "page.css")),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
    )


def _engine() -> Environment:
    engine = Environment(
        loader=PackageLoader("sglang_eagle3_probe.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters["coded"] = _coded
    return engine


def _coded(value: Any) -> Markup:
    """Between backticks stands code."""
    pieces = clean(value).split("`")
    if len(pieces) % 2 == 0:  # an odd backtick is one of the text's own
        return escape(clean(value))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else escape(piece)
        for place, piece in enumerate(pieces)
    )


def _source(engine: Environment, name: str) -> str:
    # Ours, not a template: braces in it mean nothing.
    assert engine.loader is not None
    return engine.loader.get_source(engine, name)[0]


def _plain(value: Any) -> Any:
    """Names and paths are not trusted: nothing that a browser would not print, such as marks that
    turn the direction of writing or halves of characters that no file can hold."""
    return value if isinstance(value, Markup) else clean(value)
