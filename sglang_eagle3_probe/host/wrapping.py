"""Puts handlers around SGLang's functions, as SGLang imports them, and says what became of each.

wrapt rather than SGLang's own HookRegistry (0.5.11+): that one imports every target in every
process, keeps errors to itself and cannot name a parameter.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import wrapt

from ..trace.records import SeamState
from .call import Binder, Call
from .guard import Site
from .seams import Seam

logger = logging.getLogger("sglang_eagle3_probe")

Proceed = Callable[[Call], Any]


class Handler(Protocol):
    """What may stand around a host call."""

    name: str

    def run(self, proceed: Proceed, call: Call) -> Any:
        """Call ``proceed(call)`` exactly once and return what it returned."""
        ...


class Tap:
    """A handler that only looks. Its two halves run under the guard, the host's call does not."""

    def __init__(
        self,
        site: Site,
        *,
        before: Callable[[Call], None] | None = None,
        after: Callable[[Call, Any], None] | None = None,
    ) -> None:
        self.name = site.name
        self._site = site
        self._before = before
        self._after = after

    def run(self, proceed: Proceed, call: Call) -> Any:
        site = self._site
        if site.enabled and self._before is not None:
            with site:
                site.check()
                self._before(call)
        result = proceed(call)
        if site.enabled and self._after is not None:
            with site:
                site.check()
                self._after(call, result)
        return result


class Installer:
    """Wraps the rows of a seam table in this process. One per process."""

    def __init__(self, handlers: Mapping[str, Sequence[Handler]]) -> None:
        """
        Args:
            handlers: seam name -> handlers, outermost first. A seam without handlers is left alone.
        """
        self._handlers = handlers
        self._states: dict[Seam, SeamState] = {}

    def install(self, seams: Iterable[Seam]) -> None:
        """Register an import hook per row. Nothing of SGLang is imported by this."""
        for seam in seams:
            handlers = self._handlers.get(seam.name, ())
            if not handlers:
                continue
            self._states[seam] = SeamState(
                name=seam.name,
                target=seam.target,
                state="not_imported",
                why="this process has not imported the module",
                used_by=[h.name for h in handlers],
            )
            wrapt.register_post_import_hook(self._hook(seam, handlers), seam.module)

    def note_absent(self, seams: Iterable[Seam], release: str) -> None:
        """Rows that do not hold in this release, for the report."""
        for seam in seams:
            handlers = self._handlers.get(seam.name, ())
            if handlers:
                self._states[seam] = SeamState(
                    name=seam.name,
                    target=seam.target,
                    state="absent",
                    why=f"this row holds for SGLang {seam.releases}; installed is {release}",
                    used_by=[h.name for h in handlers],
                )

    def states(self) -> list[SeamState]:
        """What became of every row so far."""
        return list(self._states.values())

    def _hook(self, seam: Seam, handlers: Sequence[Handler]) -> Callable[[Any], None]:
        def on_import(module: Any) -> None:
            # An exception here would make the host's own import fail.
            state = self._states[seam]
            try:
                state.state, state.why = wrap(module, seam, handlers)
            except Exception as error:
                state.state, state.why = "failed", f"{type(error).__name__}: {error}"

        return on_import


def wrap(module: Any, seam: Seam, handlers: Sequence[Handler]) -> tuple[Any, str]:
    """Wrap one target in an imported module.

    Returns:
        The seam's state and, where it is not plainly patched, why.
    """
    owner, name = _owner(module, seam.attribute)
    if owner is None:
        return "failed", f"{seam.attribute} does not exist in {seam.module}"
    static = inspect.getattr_static(owner, name)
    if isinstance(static, property):
        return "failed", f"{seam.attribute} is a property; wrapping it would break its readers"
    if isinstance(static, wrapt.FunctionWrapper):
        return "patched", "already"
    function = static.__func__ if isinstance(static, staticmethod | classmethod) else static
    has_self = inspect.isclass(owner) and not isinstance(static, staticmethod)
    binder = Binder.of(function, has_self=has_self)
    wrapt.wrap_function_wrapper(module, seam.attribute, _wrapper(binder, handlers))
    if not isinstance(inspect.getattr_static(owner, name), wrapt.FunctionWrapper):
        return "failed", "the wrapper did not stay in place"
    missing = [p for p in seam.parameters if p not in binder.positions]
    return "patched", f"parameters not in this release: {', '.join(missing)}" if missing else ""


def _owner(module: Any, attribute: str) -> tuple[Any, str]:
    *path, name = attribute.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part, None)
        if owner is None:
            return None, name
    return (owner, name) if hasattr(owner, name) else (None, name)


def _wrapper(binder: Binder, handlers: Sequence[Handler]) -> Callable[..., Any]:
    """Compose handlers, outermost first, into one wrapt wrapper."""
    proceed: Proceed = _call_host
    for handler in reversed(handlers):
        proceed = _around(handler, proceed)

    def wrapper(
        wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return proceed(Call(binder, wrapped, instance, args, kwargs))

    return wrapper


def _call_host(call: Call) -> Any:
    return call.wrapped(*call.args, **call.kwargs)


def _around(handler: Handler, proceed: Proceed) -> Proceed:
    return lambda call: handler.run(proceed, call)
