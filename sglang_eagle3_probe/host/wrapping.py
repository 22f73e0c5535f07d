"""Puts handlers around SGLang's functions, as SGLang imports them, and says what became of each.

wrapt rather than SGLang's own HookRegistry (0.5.11+): that one imports every target in every
process, keeps errors to itself and cannot name a parameter.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter_ns
from typing import Any, Protocol

import wrapt

from ..trace.records import SeamState
from .call import Binder, Call
from .cost import CostBook
from .guard import Site
from .seams import Seam

Proceed = Callable[[Call], Any]


class Handler(Protocol):
    """What may stand around a host call."""

    name: str

    def run(self, proceed: Proceed, call: Call) -> Any:
        """Call ``proceed(call)`` exactly once and return what it returned."""
        ...


class Traceable(Protocol):
    """What may stand around a host function that torch.compile traces.

    wrapt's wrapper is C code, which ends a compilation; handlers and time keeping are not for
    compiled code either.
    """

    name: str

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A plain Python function of the same signature. It runs without the guard."""
        ...


class Tap:
    """A handler that only looks. Its two halves run under the guard, the host's call does not.

    Args:
        paired: ``after`` is called only when ``before`` left something in ``call.scratch``, so that
            a call that ``before`` passes over costs one look.
    """

    def __init__(
        self,
        site: Site,
        *,
        before: Callable[[Call], None] | None = None,
        after: Callable[[Call, Any], None] | None = None,
        paired: bool = False,
    ) -> None:
        self.name = site.name
        self.before = before
        self.after = after
        self._site = site
        self._paired = paired

    def run(self, proceed: Proceed, call: Call) -> Any:
        """See ``Handler``."""
        scratch = self.look_before(call)
        result = proceed(call)
        self.look_after(call, result, scratch)
        return result

    def look_before(self, call: Call) -> Any:
        """The first half; what it left in ``call.scratch``: several taps may stand around one call,
        and each has its own."""
        call.scratch = None
        site, before = self._site, self.before
        if before is not None and site.enabled:
            # A ``with`` block would be three Python calls more, in every wrapped call of a round.
            try:
                if site.induced:
                    site.check()
                before(call)
            except BaseException as error:
                if not site.__exit__(type(error), error, error.__traceback__):
                    raise
        return call.scratch

    def look_after(self, call: Call, result: Any, scratch: Any) -> None:
        """The second half. scratch: what the first one returned."""
        site, after = self._site, self.after
        if after is None or not site.enabled or (self._paired and scratch is None):
            return
        call.scratch = scratch
        try:
            if site.induced:
                site.check()
            after(call, result)
        except BaseException as error:
            if not site.__exit__(type(error), error, error.__traceback__):
                raise


class Installer:
    """Wraps the rows of a seam table in this process. One per process."""

    def __init__(
        self,
        handlers: Mapping[str, Sequence[Handler]],
        traceable: Mapping[str, Traceable] | None = None,
    ) -> None:
        """
        Args:
            handlers: seam name -> handlers, outermost first. A seam without handlers is left alone.
            traceable: seam name -> what stands there as plain Python, in place of handlers.
        """
        self._handlers = handlers
        self._traceable = traceable or {}
        self._states: dict[Seam, SeamState] = {}
        self._wrapped: dict[Seam, Wrapped] = {}
        self.cost = CostBook()
        """What our wrappers take; whoever wants the records sets its ``emit``."""

    def install(self, seams: Iterable[Seam]) -> None:
        """Register an import hook per row. Nothing of SGLang is imported by this."""
        for seam in seams:
            users = self._users(seam)
            if not users:
                continue
            self._states[seam] = SeamState(
                name=seam.name,
                target=seam.target,
                state="not_imported",
                why="this process has not imported the module",
                used_by=users,
            )
            wrapt.register_post_import_hook(self._hook(seam), seam.module)

    def note_absent(self, seams: Iterable[Seam], release: str) -> None:
        """Rows that do not hold in this release, for the report."""
        for seam in seams:
            users = self._users(seam)
            if users:
                self._states[seam] = SeamState(
                    name=seam.name,
                    target=seam.target,
                    state="absent",
                    why=f"this row holds for SGLang {seam.releases}; installed is {release}",
                    used_by=users,
                )

    def states(self) -> list[SeamState]:
        """What became of every row, looked at again now: others may have patched after us."""
        for seam, wrapped in self._wrapped.items():
            state = self._states[seam]
            if state.state == "patched" and not wrapped.in_place():
                state.state = "failed"
                state.why = "something else replaced the patched function afterwards"
        return list(self._states.values())

    def _users(self, seam: Seam) -> list[str]:
        traceable = self._traceable.get(seam.name)
        if traceable is not None:
            return [traceable.name]
        return [h.name for h in self._handlers.get(seam.name, ())]

    def _wrap(self, module: Any, seam: Seam) -> Wrapped:
        traceable = self._traceable.get(seam.name)
        if traceable is not None:
            return wrap_traceably(module, seam, traceable)
        return wrap(module, seam, self._handlers[seam.name], self.cost)

    def _hook(self, seam: Seam) -> Callable[[Any], None]:
        def on_import(module: Any) -> None:
            # An exception here would make the host's own import fail.
            state = self._states[seam]
            try:
                wrapped = self._wrap(module, seam)
            except Exception as error:
                state.state, state.why = "failed", _reason(error)
            else:
                self._wrapped[seam] = wrapped
                state.state, state.why = "patched", wrapped.remark

        return on_import


class SeamError(LookupError):
    """A seam's target is not what its row says."""


@dataclass(frozen=True)
class Wrapped:
    """A target with our wrapper on it. remark: parameters that this release lacks, if any."""

    owner: Any
    name: str
    wrapper: Any
    remark: str

    def in_place(self) -> bool:
        """Whether calls still come through our wrapper, however many others stand around it."""
        current = inspect.getattr_static(self.owner, self.name, None)
        for _ in range(64):
            if current is self.wrapper:
                return True
            current = getattr(current, "__func__", None) or getattr(current, "__wrapped__", None)
            if current is None:
                return False
        return False


def wrap(
    module: Any, seam: Seam, handlers: Sequence[Handler], cost: CostBook | None = None
) -> Wrapped:
    """Wrap one target in an imported module.

    Args:
        cost: where the time of our own code around each call is counted.

    Raises:
        SeamError: the target does not exist, or is of a kind that cannot be wrapped.
    """
    owner, name, static = _locate(module, seam)
    is_static_method = isinstance(static, staticmethod)
    function = static.__func__ if is_static_method else static
    binder = Binder.of(function, has_self=inspect.isclass(owner) and not is_static_method)
    wrapper = wrapt.FunctionWrapper(
        function, _wrapper(binder, handlers, seam.name, cost or CostBook())
    )
    # Inside the staticmethod, not around it: SGLang's own HookRegistry takes a staticmethod apart
    # and would lose a wrapper that stands outside.
    setattr(owner, name, staticmethod(wrapper) if is_static_method else wrapper)
    missing = [p for p in seam.parameters if p not in binder.positions]
    remark = f"parameters not in this release: {', '.join(missing)}" if missing else ""
    return Wrapped(owner, name, wrapper, remark)


def wrap_traceably(module: Any, seam: Seam, traceable: Traceable) -> Wrapped:
    """Put a plain Python function in a method's place.

    Raises:
        SeamError: the target does not exist, or is not a method that can be replaced.
    """
    owner, name, static = _locate(module, seam)
    if isinstance(static, staticmethod):
        raise SeamError(f"{seam.attribute} is a staticmethod, not a plain function")
    made = functools.wraps(static)(traceable.around(static))
    setattr(owner, name, made)
    return Wrapped(owner, name, made, "")


def _locate(module: Any, seam: Seam) -> tuple[Any, str, Any]:
    """Owner, name and what stands there now, descriptors included."""
    *path, name = seam.attribute.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part, None)
    if owner is None or not hasattr(owner, name):
        raise SeamError(f"{seam.attribute} does not exist in {seam.module}")
    static = inspect.getattr_static(owner, name)
    if isinstance(static, property | classmethod):
        raise SeamError(f"{seam.attribute} is a {type(static).__name__}, not a plain function")
    return owner, name, static


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SeamError) else f"{type(error).__name__}: {error}"


def _wrapper(
    binder: Binder, handlers: Sequence[Handler], seam: str, cost: CostBook
) -> Callable[..., Any]:
    """Compose handlers, outermost first, into one wrapt wrapper."""
    clock = cost.clock(seam)
    proceed: Proceed = _call_host
    for are_taps, group in groupby(reversed(handlers), lambda handler: isinstance(handler, Tap)):
        inner_first = list(group)
        if are_taps:
            proceed = _looked_at(inner_first[::-1], proceed)
        else:
            for handler in inner_first:
                proceed = _around(handler, proceed)

    def wrapper(
        wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not clock.is_due():
            return proceed(Call(binder, wrapped, instance, args, kwargs))
        began_ns = perf_counter_ns()
        call = Call(binder, wrapped, instance, args, kwargs)
        call.is_timed = True
        try:
            return proceed(call)
        finally:
            now_ns = perf_counter_ns()
            cost.add(clock, now_ns - began_ns - call.host_ns, now_ns)

    return wrapper


def _call_host(call: Call) -> Any:
    if not call.is_timed:
        return call.wrapped(*call.args, **call.kwargs)
    began_ns = perf_counter_ns()
    try:
        return call.wrapped(*call.args, **call.kwargs)
    finally:
        call.host_ns = perf_counter_ns() - began_ns


def _looked_at(taps: Sequence[Any], proceed: Proceed) -> Proceed:
    """Taps around a call, outermost first: what ``run`` of each around the next would do, in one
    frame instead of two for each."""
    before = [(place, tap) for place, tap in enumerate(taps) if tap.before is not None]
    after = [(place, tap) for place, tap in enumerate(taps) if tap.after is not None][::-1]

    def run(call: Call) -> Any:
        kept = [None] * len(taps)
        for place, tap in before:
            kept[place] = tap.look_before(call)
        result = proceed(call)
        for place, tap in after:
            tap.look_after(call, result, kept[place])
        return result

    return run


def _around(handler: Handler, proceed: Proceed) -> Proceed:
    return lambda call: handler.run(proceed, call)
