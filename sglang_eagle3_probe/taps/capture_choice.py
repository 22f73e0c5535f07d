"""Which requests are captured: the first ones, then one in so many. Equal on every rank."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

REMEMBERED = 4096
"""Requests whose decision is remembered until they end."""
HEALTH_CHECKS = "HEALTH_CHECK"
"""Prefix of the request ids of SGLang's own health checks."""


@dataclass(frozen=True)
class Chosen:
    """A request that is captured. number: of the captured requests of this process, from 0."""

    request: str
    number: int
    all_layers: bool


class RequestChoice:
    """Decides once per request, in the order in which requests are first prefilled.

    Tensor-parallel ranks prefill in the same order, so they choose the same requests.
    """

    def __init__(self, first: int, every: int, all_layers: int) -> None:
        """
        Args:
            first: so many requests are captured from the start.
            every: after those, one in so many; 0: none.
            all_layers: the first so many of the captured requests also with all boundaries.
        """
        self._first = max(first, all_layers)
        self._every = every
        self._all_layers = all_layers
        self._seen = self._taken = 0
        self._running_all_layers = 0
        self._decided: OrderedDict[str, Chosen | None] = OrderedDict()

    def decide(self, request: str) -> Chosen | None:
        """The request's number and so on, or ``None`` if it is not captured."""
        if request in self._decided:
            return self._decided[request]
        chosen = None
        if not request.startswith(HEALTH_CHECKS):
            later = self._seen - self._first
            if later < 0 or (self._every and later % self._every == self._every - 1):
                chosen = Chosen(request, self._taken, self._taken < self._all_layers)
                self._taken += 1
                self._running_all_layers += chosen.all_layers
            self._seen += 1
        self._decided[request] = chosen
        if len(self._decided) > REMEMBERED:
            self.forget(next(iter(self._decided)))
        return chosen

    def is_decided(self, request: str) -> bool:
        """Whether this request was decided before."""
        return request in self._decided

    def forget(self, request: str) -> Chosen | None:
        """The request has ended; its id may come again for another one."""
        chosen = self._decided.pop(request, None)
        if chosen is not None:
            self._running_all_layers -= chosen.all_layers
        return chosen

    @property
    def wants_all_layers(self) -> bool:
        """Whether a request to come, or one that runs, is captured with all boundaries."""
        return self._taken < self._all_layers or self._running_all_layers > 0
