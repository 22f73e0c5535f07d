"""Evidence as JSON can hold it: what configs bring in is not ours to trust."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LONGEST_LIST = 64
LONGEST_TEXT = 400
WIDEST_INTEGER_BITS = 53
"""Beyond it a reader that knows doubles only would see another number."""


def plain(value: Any) -> Any:
    """Any value as strict JSON can hold it: config files may bring in NaN and the like."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(entry) for entry in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value)


def printable(text: str) -> str:
    """One line, without what would steer a terminal: names in a config can hold anything."""
    return "".join(c if c.isprintable() else " " if c in "\n\t\r" else "?" for c in text)


def small(value: Any) -> Any:
    """The same for a line of a trace or a log: bounded, printable, integers any reader can hold."""
    value = plain(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= WIDEST_INTEGER_BITS else str(value)[:LONGEST_TEXT]
    if isinstance(value, str):
        return printable(value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}...")
    if isinstance(value, dict):
        return {small(k): small(v) for k, v in list(value.items())[:LONGEST_LIST]}
    if isinstance(value, list):
        rest = len(value) - LONGEST_LIST
        return [small(v) for v in value[:LONGEST_LIST]] + ([f"... {rest} more"] if rest > 0 else [])
    return value
