"""Several forwards of one draft in step, so that each weight is read once for all of them.

Turning a weight of a large draft into the computing dtype takes as long as multiplying it with some
hundred rows, and few rows at a time leave a processor's cores waiting for memory. Forwards that run
together stop before each product; the products with one weight are then computed in one go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

Found = TypeVar("Found")

BLOCK = 1 << 24
"""Numbers of a weight that are turned into the computing dtype at once."""
NUMBERS = 1 << 27
"""Of the rows that are multiplied in one go, at most."""

_here = threading.local()


def multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x`` [T, in] times ``weight`` [out, in] transposed, in ``x``'s dtype.

    The weight is turned into that dtype piece by piece, so that it needs no second copy.
    """
    forward: _Forward[object] | None = getattr(_here, "forward", None)
    return _product(x, weight) if forward is None else forward.ask(x, weight)


def together(forwards: Sequence[Callable[[], Found]]) -> list[Found | Exception]:
    """What each of some independent computations gives, or the exception that ended it.

    Results are those of one after the other, but for the order in which a processor adds. One of
    them runs at any time.
    """
    if len(forwards) < 2:
        return [_alone(forward) for forward in forwards]
    running = [_Forward(forward) for forward in forwards]
    try:
        for each in running:
            each.go_on()
        while asking := [each for each in running if each.question is not None]:
            _answer(asking)
    finally:
        for each in running:
            each.leave()
    return [each.result() for each in running]


def _alone(forward: Callable[[], Found]) -> Found | Exception:
    try:
        return forward()
    except Exception as error:
        return error


def _answer(asking: Sequence[_Forward[Found]]) -> None:
    """Multiply for those that wait for the same weight as the one that is furthest behind."""
    behind = min(asking, key=lambda each: each.asked)
    assert behind.question is not None
    weight = behind.question[1]
    group: list[_Forward[Found]] = []
    numbers = 0
    for each in asking:
        x, wanted = each.question or behind.question
        if wanted is not weight or x.dtype != behind.question[0].dtype:
            continue
        if group and numbers + x.numel() > NUMBERS:
            break
        group.append(each)
        numbers += x.numel()
    rows = [each.question[0] for each in group if each.question is not None]
    products = _product(torch.cat(rows), weight).split([len(x) for x in rows])
    for each, product in zip(group, products, strict=True):
        each.answer = product
        each.go_on()


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if weight.dtype == x.dtype:
        return x @ weight.to(x.dtype).T
    rows = max(1, BLOCK // max(1, weight.shape[1]))
    result = x.new_empty(x.shape[0], weight.shape[0])
    for start in range(0, weight.shape[0], rows):
        part = weight[start : start + rows]
        wide = _scratch(x.dtype, part.numel()).view(part.shape).copy_(part)
        result[:, start : start + rows] = x @ wide.T
    return result


def _scratch(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Memory of this thread: fresh pages take several times as long as what is written to them."""
    kept: torch.Tensor | None = getattr(_here, "scratch", None)
    if kept is None or kept.dtype != dtype or len(kept) < count:
        # Made in inference mode it could not be written to outside of it, later on.
        with torch.inference_mode(False):
            kept = _here.scratch = torch.empty(count, dtype=dtype)
    return kept[:count]


class _Left(BaseException):
    """The forwards were given up."""


class _Forward(Generic[Found]):
    """One computation on a thread of its own, which waits whenever ours runs."""

    def __init__(self, forward: Callable[[], Found]) -> None:
        self.question: tuple[torch.Tensor, torch.Tensor] | None = None
        self.answer: torch.Tensor | None = None
        self.asked = 0
        self._forward = forward
        self._found: list[Found] = []
        self._error: BaseException | None = None
        self._left = False
        self._turn, self._ours = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        _here.forward = self
        try:
            if not self._left:
                self._found.append(self._forward())
        except BaseException as error:
            self._error = error
        finally:
            self.question = None
            self._ours.release()

    def ask(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """On the forward's thread: wait for a product."""
        self.question = x, weight
        self.asked += 1
        self._ours.release()
        self._turn.acquire()
        answer, self.answer = self.answer, None
        if self._left or answer is None:
            raise _Left
        return answer

    def go_on(self) -> None:
        """Let it run until it asks or ends."""
        self.question = None
        self._turn.release()
        self._ours.acquire()

    def leave(self) -> None:
        """End the thread, if it has not ended."""
        self._left = True
        while self._thread.is_alive():
            self._turn.release()
            self._thread.join(timeout=1)

    def result(self) -> Found | Exception:
        if isinstance(self._error, Exception):
            return self._error
        if self._error is not None:
            raise self._error
        return self._found[0]
