"""Spares Python the search for garbage where there is none of that kind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Pause the cyclic collector. Records hold no cycles and go when the last name of them goes;
    while millions pass by, looking for cycles takes half of the time, in forked workers too."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
