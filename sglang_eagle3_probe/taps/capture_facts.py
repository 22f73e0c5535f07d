"""What every piece of a capture says about the server that wrote it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from os import getpid
from typing import Any

from ..capture.layout import PieceInfo
from ..host.ranks import leads_group
from ..host.session import CapturePlan, Session
from .draft_built import vocab_size
from .tensors import dtype_of


@dataclass(frozen=True)
class RoundShape:
    """Sizes of a verify round. draft_width: of the draft's recurrent state, 0 where unknown."""

    nodes: int
    steps: int
    topk: int
    draft_width: int = 0


class CaptureFacts:
    """Read when the first piece is made: by then everything is wired."""

    def __init__(self, session: Session, worker: Any) -> None:
        self._session = session
        self._worker = worker

    @property
    def plan(self) -> CapturePlan | None:
        """What the target captures for the draft; ``None`` without aux hidden states."""
        for plan in list(self._session.plans.values()):
            return plan
        return None

    @property
    def process(self) -> str:
        """What tells the files of this process from those of others."""
        ranks = self._session.ranks
        words = [socket.gethostname(), str(getpid()), f"tp{ranks.tp_rank or 0}"]
        return "-".join([*words, *([f"dp{ranks.dp_rank}"] if ranks.dp_rank else [])])

    @property
    def writes_files(self) -> bool:
        """Ranks that serve the same requests hold equal states; the first one writes them."""
        return leads_group(self._session.ranks, self._session.server_args)

    def shape(self, draft_width: int) -> RoundShape:
        """Sizes of a round, as the worker has them now."""
        worker = self._worker
        steps = int(getattr(worker, "speculative_num_steps", 0) or 0)
        return RoundShape(
            nodes=int(getattr(worker, "speculative_num_draft_tokens", 0) or steps + 1),
            steps=steps,
            topk=int(getattr(worker, "topk", 1) or 1),
            draft_width=draft_width,
        )

    def base(self, plan: CapturePlan, states: Any) -> PieceInfo:
        """The description of a piece, without what differs from piece to piece."""
        session = self._session
        ranks, arguments = session.ranks, session.server_args
        target = getattr(getattr(self._worker, "target_worker", None), "model_runner", None)
        config = getattr(target, "model_config", None)
        vocabulary = vocab_size(getattr(target, "model", None)) or 0
        hot = getattr(self._worker, "hot_token_id", None)
        layers = session.layer_ids
        return PieceInfo(
            kind="prefill",
            request="",
            piece=0,
            boundaries=list(plan.boundaries),
            hidden_width=plan.hidden_width,
            dtype=dtype_of(states),
            num_layers=layers.num_layers if layers is not None else 0,
            vocabulary=vocabulary,
            draft_vocabulary=int(hot.shape[0]) if hot is not None else vocabulary,
            target=str(getattr(arguments, "model_path", "") or ""),
            draft=str(getattr(arguments, "speculative_draft_model_path", "") or ""),
            target_class=layers.model_class if layers is not None else "",
            draft_class=session.draft.model_class or session.draft_files.architecture,
            sglang=session.release,
            tp_rank=ranks.tp_rank or 0,
            tp_size=ranks.tp_size or 1,
            dp_rank=ranks.dp_rank or 0,
            context_length=int(getattr(config, "context_len", 0) or 0),
        )
