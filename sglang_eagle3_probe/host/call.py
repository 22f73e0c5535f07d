"""One call of a wrapped function, with its arguments by name whatever the release's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


class Binder:
    """Where each parameter sits in a signature. Built once per wrapped target.

    ``inspect.Signature.bind`` costs tens of microseconds; a dictionary of positions costs one
    look-up, and never fails on a call the host itself would accept.
    """

    __slots__ = ("positions",)

    def __init__(self, positions: Mapping[str, int]) -> None:
        self.positions = positions

    @classmethod
    def of(cls, function: Callable[..., Any], *, has_self: bool) -> Binder:
        """Read the positions off ``function``'s signature.

        Args:
            has_self: the first parameter is the instance, which the wrapper receives apart.
        """
        names = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if has_self:
            names = names[1:]
        return cls({name: index for index, name in enumerate(names)})


class Call:
    """Instance and arguments of one call.

    Attributes:
        wrapped: the host's own function, bound.
        instance: the object whose method is called, or ``None`` for a function.
        scratch: room for a handler to carry something from ``before`` to ``after``.
        is_timed: the probe's own time around this call is measured.
        host_ns: time spent in the host's own function, if so.
    """

    __slots__ = (
        "_binder",
        "args",
        "host_ns",
        "instance",
        "is_timed",
        "kwargs",
        "scratch",
        "wrapped",
    )

    def __init__(
        self,
        binder: Binder,
        wrapped: Callable[..., Any],
        instance: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._binder = binder
        self.wrapped = wrapped
        self.instance = instance
        self.args = args
        self.kwargs = kwargs
        self.scratch: Any = None
        self.is_timed = False
        self.host_ns = 0

    def get(self, name: str) -> Any:
        """The argument, or ``None`` when it was not given or does not exist in this release."""
        if name in self.kwargs:
            return self.kwargs[name]
        index = self._binder.positions.get(name)
        if index is not None and index < len(self.args):
            return self.args[index]
        return None

    def replace(self, name: str, value: Any) -> bool:
        """Put another value in an argument's place, whichever way it was passed.

        Returns:
            False when the signature has no such parameter; nothing is changed then.
        """
        index = self._binder.positions.get(name)
        if index is None:
            return False
        if name in self.kwargs or index >= len(self.args):
            self.kwargs = {**self.kwargs, name: value}
        else:
            self.args = (*self.args[:index], value, *self.args[index + 1 :])
        return True
