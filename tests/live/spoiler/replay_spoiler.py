"""An SGLang plugin that makes the engine compute the wrong thing: REPLAY_SPOILER names what.

``direct_map``: values of d2t are taken for target ids, for as long as the server runs.

``switched``: the file that REPLAY_SPOILER_SWITCH names holds the fault of the moment, read at every
forward of the draft; empty: none. What the target hands over stays as it is, so that a capture
tells the truth about it.

- ``ids_in_extends``: the extends of the draft worker do not rotate the ids, so that each row has
  its own token beside it, not the next one
- ``ids_in_prefill``: only the extend of a prompt does not
- ``ids_everywhere``: each step of the draft's loop does the same: it reads the token that the step
  before it read the next one of
- ``slots_permuted``: fc reads the column blocks of its input in the order 1, 2, 0
- ``fc_skipped``: the first columns go into the layer as they are
- ``theta_times_ten``: the rotary table is that of ten times the theta
- ``last_norm_missing``: the head reads the sum that the last norm was to read
"""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import Any

import wrapt

VARIABLE = "REPLAY_SPOILER"
SWITCH = "REPLAY_SPOILER_SWITCH"

IN_ROUNDS = ("ids_in_extends", "ids_everywhere")
IN_PREFILL = ("ids_in_prefill", *IN_ROUNDS)
ORDER = (1, 2, 0)


def install() -> None:
    """Called by SGLang in each process."""
    wanted = os.environ.get(VARIABLE)
    if wanted == "direct_map":
        wrapt.register_post_import_hook(_direct_map, "sglang.srt.models.llama_eagle3")
    elif wanted == "switched":
        wrapt.register_post_import_hook(_spoil_model, "sglang.srt.models.llama_eagle3")
        wrapt.register_post_import_hook(_spoil_worker, "sglang.srt.speculative.eagle_worker_v2")


def _direct_map(module: Any) -> None:
    draft = module.LlamaForCausalLMEagle3
    load = draft.load_weights

    def load_weights(self: Any, weights: Any) -> Any:
        import torch

        result = load(self, weights)
        self.hot_token_id = self.hot_token_id - torch.arange(len(self.hot_token_id))
        return result

    draft.load_weights = load_weights


def _fault() -> str:
    return Path(os.environ[SWITCH]).read_text().strip()


# -- inside the draft ------------------------------------------------------------------------------

_read_before: dict[str, Any] = {}
"""``ids``: the ones that the draft's loop read the next ones of."""


def _spoil_model(module: Any) -> None:
    model = module.LlamaModel
    build = model.__init__

    @wraps(build)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        self.register_forward_pre_hook(_own_ids)
        self.fc.register_forward_pre_hook(_permuted)
        self.fc.register_forward_hook(_unprojected)
        self.norm.register_forward_hook(_unnormed)
        for layer in self.layers:
            rotary = layer.self_attn.rotary_emb
            rotary.register_forward_pre_hook(_turned(rotary))

    model.__init__ = built


def _own_ids(_model: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    ids, positions, batch, *more = given
    if _fault() != "ids_everywhere" or not batch.forward_mode.is_decode():
        return None
    # A copy: SGLang may put the next step's ids into the same memory.
    before, _read_before["ids"] = _read_before["ids"], ids.clone()
    return (before.to(ids.dtype), positions, batch, *more)


def _permuted(_fc: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    import torch

    if _fault() != "slots_permuted":
        return None
    blocks = given[0].chunk(len(ORDER), dim=-1)
    return (torch.cat([blocks[slot] for slot in ORDER], dim=-1),)


def _unprojected(_fc: Any, given: tuple[Any, ...], projected: Any) -> Any:
    return given[0][..., : projected.shape[-1]] if _fault() == "fc_skipped" else projected


def _unnormed(_norm: Any, _given: tuple[Any, ...], result: Any) -> Any:
    _, added = result
    return (added, added) if _fault() == "last_norm_missing" else result


def _turned(rotary: Any) -> Any:
    table = rotary.cos_sin_cache
    theta = rotary.base
    rotary.base = theta * 10
    other = rotary._compute_cos_sin_cache().to(table.dtype)
    rotary.base = theta
    assert other.shape == table.shape

    def turn(_rotary: Any, _given: tuple[Any, ...]) -> None:
        rotary.cos_sin_cache = other if _fault() == "theta_times_ten" else table

    return turn


# -- in the worker ---------------------------------------------------------------------------------


def _spoil_worker(module: Any) -> None:
    draft = module.EagleDraftWorker
    tails = module._eagle_prefill_tail_tokens
    prefill, decode = draft._draft_extend_for_prefill, draft._draft_extend_for_decode
    loop = draft.draft_forward
    own_tails: list[Any] = []

    @wraps(tails)
    def tail_tokens(*args: Any, **kwargs: Any) -> Any:
        return own_tails.pop() if own_tails else tails(*args, **kwargs)

    @wraps(prefill)
    def extend_prefill(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if _fault() in IN_PREFILL:
            # One place to the right, and the rotation to come puts each token beside its own row.
            parts = batch.input_ids.split(list(batch.extend_lens))
            own_tails.append(torch.stack([part[-1] for part in parts]))
            batch.input_ids = torch.cat([part.roll(1) for part in parts])
        return prefill(self, batch, *args, **kwargs)

    @wraps(decode)
    def extend_decode(self: Any, batch: Any, batch_result: Any, *args: Any, **kwargs: Any) -> Any:
        if _fault() not in IN_ROUNDS:
            return decode(self, batch, batch_result, *args, **kwargs)
        after = batch_result.next_token_ids
        batch_result.next_token_ids = batch.spec_info.draft_token.to(after.dtype)
        try:
            return decode(self, batch, batch_result, *args, **kwargs)
        finally:
            batch_result.next_token_ids = after

    @wraps(loop)
    def draft_forward(self: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        _read_before["ids"] = forward_batch.spec_info.bonus_tokens
        return loop(self, forward_batch, *args, **kwargs)

    module._eagle_prefill_tail_tokens = tail_tokens
    draft._draft_extend_for_prefill = extend_prefill
    draft._draft_extend_for_decode = extend_decode
    draft.draft_forward = draft_forward
