"""Which target tokens the draft can propose at all: the map in force, kept for look-ups.

Made once, when the draft is built, so that a look-up costs no device work (``hot_token_id`` of
``EagleDraftWorker`` after ``init_lm_head``, V2; of ``EAGLEWorker`` after ``__init__``, V1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap


class DraftVocabulary:
    """Membership of target tokens in the draft vocabulary."""

    def __init__(self, session: Session) -> None:
        self.tap = Tap(session.guard.site("draft_vocabulary"), after=self._after)
        self._members: bytes | None = None

    def _after(self, call: Call, _result: Any) -> None:
        hot = getattr(call.instance, "hot_token_id", None)
        self._members = None if hot is None else membership(hot.detach().cpu())

    def lacking(self, tokens: Sequence[int | None]) -> list[bool | None]:
        """Whether the draft can never propose these target tokens; ``None`` without a map, and for
        ``None``."""
        members = self._members
        if members is None:
            return [None] * len(tokens)
        known = len(members)
        return [
            None if token is None else not (0 <= token < known and members[token])
            for token in tokens
        ]


def membership(target_ids: Any) -> bytes:
    """One byte a target token, 1 where the draft vocabulary has it.

    Args:
        target_ids: [draft vocabulary] integers on the CPU: target id of each draft id.
    """
    import torch

    ids = target_ids.to(torch.int64)
    ids = ids[ids >= 0]
    found = torch.zeros(int(ids.max()) + 1 if ids.numel() else 0, dtype=torch.uint8)
    found[ids] = 1
    members: bytes = found.numpy().tobytes()
    return members
