"""Interpolated Kneser-Ney n-gram, the baseline that the target has to beat.

Modified Kneser-Ney (three discounts per order, from counts of counts; Chen and Goodman 1998),
interpolated down to a uniform distribution. All counting is by sorting integer keys, so three
million tokens take seconds.
"""

from __future__ import annotations

import numpy as np


class _Order:
    """Counts of one order: ``gram = context * vocab + token`` with discounts per context."""

    def __init__(self, grams: np.ndarray, counts: np.ndarray, vocab_size: int) -> None:
        self.grams, self.counts = grams, counts
        of_counts = [float((counts == n).sum()) for n in (1, 2, 3, 4)]
        y = of_counts[0] / (of_counts[0] + 2 * of_counts[1])
        self.discounts = np.zeros(4)
        for n in (1, 2, 3):
            ratio = of_counts[n] / of_counts[n - 1] if of_counts[n - 1] else 0.0
            self.discounts[n] = min(max(n - (n + 1) * y * ratio, 0.0), float(n))
        contexts = grams // vocab_size
        self.contexts, starts = np.unique(contexts, return_index=True)
        self.totals = np.add.reduceat(counts, starts).astype(np.float64)
        given_up = self.discounts[np.minimum(counts, 3)]
        self.left_over = np.add.reduceat(given_up, starts) / self.totals

    def interpolate(self, contexts: np.ndarray, grams: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Probability of each gram, given the lower order's. All of shape (tokens,)."""
        row = np.minimum(np.searchsorted(self.contexts, contexts), len(self.contexts) - 1)
        seen = self.contexts[row] == contexts
        at = np.minimum(np.searchsorted(self.grams, grams), len(self.grams) - 1)
        count = np.where(self.grams[at] == grams, self.counts[at], 0)
        kept = np.maximum(count - self.discounts[np.minimum(count, 3)], 0.0)
        mixed = kept / self.totals[row] + self.left_over[row] * lower
        return np.where(seen, mixed, lower)


class KneserNey:
    """N-gram model of order ``order`` over a token stream of shape (tokens,)."""

    def __init__(self, stream: np.ndarray, vocab_size: int, order: int = 3) -> None:
        self.vocab_size, self.order = vocab_size, order
        self._orders: list[_Order] = []
        grams, counts = np.unique(_keys(stream, order, vocab_size), return_counts=True)
        for n in range(order, 0, -1):
            self._orders.append(_Order(grams, counts, vocab_size))
            # continuation counts: in how many left contexts the shorter gram was seen
            grams, counts = np.unique(grams % vocab_size ** (n - 1), return_counts=True)
        self._orders.reverse()

    def token_losses(self, stream: np.ndarray) -> np.ndarray:
        """Negative log probability of tokens ``order - 1`` onwards, in nats."""
        skip = self.order - 1
        prob = np.full(len(stream) - skip, 1.0 / self.vocab_size)
        for n, counts in enumerate(self._orders, start=1):
            keys = _keys(stream[skip - (n - 1) :], n, self.vocab_size)
            prob = counts.interpolate(keys // self.vocab_size, keys, prob)
        return -np.log(prob)

    def loss(self, stream: np.ndarray) -> float:
        return float(self.token_losses(stream).mean())


def _keys(stream: np.ndarray, order: int, vocab_size: int) -> np.ndarray:
    """One integer per window of ``order`` tokens; shape (tokens - order + 1,)."""
    windows = len(stream) - order + 1
    keys = np.zeros(windows, dtype=np.int64)
    for offset in range(order):
        keys = keys * vocab_size + stream[offset : offset + windows]
    return keys
