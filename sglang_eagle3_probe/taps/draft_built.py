"""Once the draft worker is built: the vocabulary map in force, and whose embedding and head.

V1: after ``EAGLEWorker.__init__`` (0.5.9 to 0.5.12.post1). V2: after
``EagleDraftWorker.init_lm_head``, which shares the target's embedding and takes ``hot_token_id``.
"""

from __future__ import annotations

from typing import Any, Literal

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.records import VocabMap, Weights
from .digests import tensorprint, whole_digest

Source = Literal["target", "own", "unknown"]


class DraftBuiltTap:
    """Two taps on one seam, so that a fault in one does not silence the other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.vocab_map = Tap(session.guard.site("vocab_map"), after=self._vocab_map)
        self.weights = Tap(session.guard.site("weights"), after=self._weights)

    def _vocab_map(self, call: Call, _result: Any) -> None:
        worker = call.instance
        draft, target = _draft_model(worker), _target_model(worker)
        facts = self._session.draft
        in_force = getattr(worker, "hot_token_id", None)
        held = getattr(draft, "hot_token_id", None)
        used = in_force if in_force is not None else held
        record = VocabMap(
            present=facts.d2t is not None or held is not None,
            in_force=in_force is not None,
            head_rows=_head_rows(draft),
            target_vocab_size=vocab_size(target),
        )
        if used is not None:
            describe_map(record, used.detach().cpu(), facts.d2t, facts.t2d)
            if self._session.settings.full_vocab_map:
                record.full_map = used.detach().cpu().tolist()
        self._session.vocab_map = record
        self._session.emit(record)
        self._session.say("%s", _map_line(record))

    def _weights(self, call: Call, _result: Any) -> None:
        worker = call.instance
        draft, target = _draft_model(worker), _target_model(worker)
        facts = self._session.draft
        embed, target_embed = _embed(draft), _embed(target)
        head, target_head = _head(draft), _head(target)
        embed_source = _source(embed, target_embed)
        head_source = _source(head, target_head)
        # Filled by nobody at load, but replaced by the target's afterwards.
        replaced = ["embed_tokens"] if embed_source == "target" else []
        replaced += ["lm_head"] if head_source == "target" else []
        inner = getattr(draft, "model", draft)
        tensors = {
            "embed_tokens": embed,
            "lm_head": head,
            "fc": getattr(getattr(inner, "fc", None), "weight", None),
        }
        owns_embed = any("embed_tokens" in name for name in facts.checkpoint_names)
        record = Weights(
            model_class=type(draft).__name__,
            loaded_names=len(facts.checkpoint_names),
            not_taken=facts.not_taken,
            not_filled=[n for n in facts.not_filled if not any(r in n for r in replaced)],
            embed_source=embed_source,
            head_source=head_source,
            own_embed_dropped=owns_embed and embed_source == "target",
            digests={name: tensorprint(t) for name, t in tensors.items() if t is not None},
        )
        self._session.weights = record
        self._session.emit(record)
        self._session.say(
            "draft weights: %d tensors read; left over: %s; parameters unfilled: %s; "
            "embedding: %s, head: %s",
            record.loaded_names,
            record.not_taken or "none",
            record.not_filled or "none",
            _whose(embed_source),
            _whose(head_source),
        )


def describe_map(record: VocabMap, hot_token_id: Any, d2t: Any, t2d: Any) -> None:
    """Fill a record from the map in force.

    Args:
        hot_token_id: [draft vocabulary] integers on the CPU: target id of each draft id.
        d2t: the checkpoint's [draft vocabulary] offsets, or ``None``. The convention of every
            trainer that prunes (conventions of EAGLE, SpecForge, ModelOpt, TorchSpec,
            speculators): target id = i + d2t[i], ascending.
        t2d: the checkpoint's [target vocabulary] mask of kept tokens, or ``None``.
    """
    import torch

    ids = hot_token_id.to(torch.int64)
    arange = torch.arange(ids.numel())
    record.size = int(ids.numel())
    record.digest = whole_digest(ids)
    if not ids.numel():
        return
    record.minimum, record.maximum = int(ids.min()), int(ids.max())
    record.identity_share = float((ids == arange).double().mean())
    record.strictly_increasing = bool((ids[1:] > ids[:-1]).all())
    record.duplicates = int(ids.numel() - ids.unique().numel())
    if d2t is not None:
        offsets = d2t.to(torch.int64)
        record.equals_d2t_plus_arange = bool(
            offsets.numel() == ids.numel() and (offsets + arange == ids).all()
        )
        # Offsets of a real pruning repeat (neighbours kept together); target ids never do.
        increasing = bool((offsets[1:] > offsets[:-1]).all()) and offsets.numel() > 1
        limit = record.target_vocab_size
        record.d2t_looks_direct = increasing and limit is not None and record.maximum >= limit
    if t2d is not None:
        kept = t2d.to(torch.bool).nonzero().flatten()
        record.agrees_with_t2d = bool(kept.numel() == ids.numel() and (kept == ids).all())


def _map_line(record: VocabMap) -> str:
    if not record.present:
        return (
            f"hot_token_id: none; draft head {record.head_rows} rows, "
            f"target vocabulary {record.target_vocab_size}"
        )
    return (
        f"hot_token_id: {record.size} of {record.target_vocab_size} target tokens, "
        f"{record.minimum} to {record.maximum}, identity share {record.identity_share:.3f}, "
        f"strictly increasing {_yes(record.strictly_increasing)}, "
        f"equals d2t + arange {_yes(record.equals_d2t_plus_arange)}, "
        f"agrees with t2d {_yes(record.agrees_with_t2d)}, digest {record.digest}"
        + ("" if record.in_force else "; NOT in force: the worker does not use it")
    )


def _yes(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "NO"


def _whose(source: Source) -> str:
    return {"target": "the target's", "own": "the draft's own", "unknown": "unknown"}[source]


def draft_runner(worker: Any) -> Any:
    """The draft's model runner, or ``None``."""
    runner = getattr(worker, "draft_runner", None) or getattr(worker, "draft_model_runner", None)
    # V1: the worker is itself the draft's TpModelWorker.
    return runner if runner is not None else getattr(worker, "model_runner", None)


def target_runner(worker: Any) -> Any:
    """The target's model runner as the draft worker holds it, or ``None``."""
    return getattr(getattr(worker, "target_worker", None), "model_runner", None)


def _draft_model(worker: Any) -> Any:
    return getattr(draft_runner(worker), "model", None)


def _target_model(worker: Any) -> Any:
    return getattr(target_runner(worker), "model", None)


def _embed(model: Any) -> Any:
    for path in ("model.embed_tokens", "language_model.model.embed_tokens", "embed_tokens"):
        found = _walk(model, path)
        if found is not None:
            return getattr(found, "weight", None)
    return None


def _head(model: Any) -> Any:
    for path in ("lm_head", "language_model.lm_head"):
        found = _walk(model, path)
        if found is not None:
            return getattr(found, "weight", None)
    return None


def _walk(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name, None)
        if root is None:
            return None
    return root


def _source(mine: Any, targets: Any) -> Source:
    if mine is None or targets is None:
        return "unknown"
    return "target" if mine.data_ptr() == targets.data_ptr() else "own"


def _head_rows(draft: Any) -> int | None:
    head = getattr(draft, "lm_head", None)
    for name in ("org_vocab_size", "num_embeddings"):
        value = getattr(head, name, None)
        if isinstance(value, int):
            return value
    weight = getattr(head, "weight", None)
    return int(weight.shape[0]) if weight is not None else None


def vocab_size(target: Any) -> int | None:
    config = getattr(target, "config", None)
    for holder in (config, getattr(config, "text_config", None)):
        value = getattr(holder, "vocab_size", None)
        if isinstance(value, int):
            return value
    return None
