"""A dictionary that forgets, in constant time per entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Holds the newest entries: at least ``keep``, at most twice that and what two updates bring.

    Two generations; the older is dropped whole when the younger is full. (Deleting a dict's oldest
    entry one by one costs time that grows with what was deleted before.)
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self.dropped = 0
        """Entries forgotten so far; those taken out by ``pop`` are not among them."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def update(self, entries: Mapping[K, V]) -> None:
        """Put entries in, none of which is held already in the older generation."""
        self._young.update(entries)
        if len(self._young) >= self._keep:
            self.dropped += len(self._old)
            self._old, self._young = self._young, {}

    def holder(self, key: K) -> dict[K, V] | None:
        """The generation that holds the key: its entry may be read, replaced or taken out there."""
        if key in self._young:
            return self._young
        return self._old if key in self._old else None

    def get(self, key: K, default: V) -> V:
        young = self._young.get(key)
        return self._old.get(key, default) if young is None else young

    def pop(self, key: K) -> V | None:
        """Take an entry out; ``None`` if it is not held."""
        held = self.holder(key)
        return None if held is None else held.pop(key)
