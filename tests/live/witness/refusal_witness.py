"""An SGLang plugin that watches refusals by its own means: Python lists by request id, and sorting.

Nothing is shared with the probe. It writes one JSON line per request and verify round to the file
that REFUSAL_WITNESS names: rid, how often it was seen verified before, position, rank, whether a
draft submitted there was the target's argmax, whether the draft was not run there. Beams are known
by the tokens that lead to them, seen where SGLang chooses them; the submitted tree is read off its
links.
"""

from __future__ import annotations

import json
import os
from typing import Any

import wrapt

VARIABLE = "REFUSAL_WITNESS"

first: dict[str, Any] = {}
"""rid -> logits that its next first draft is taken from."""
later: dict[str, list[dict[tuple[int, ...], Any]]] = {}
"""rid -> by decode step of the round: tokens of a beam, and the logits after them."""
chosen: list[list[tuple[int, ...]]] = []
"""By step of the round: tokens of each beam, request by request."""
rounds: dict[str, int] = {}


def install() -> None:
    """Called by SGLang in each process."""
    wrapt.register_post_import_hook(_watch, "sglang.srt.speculative.eagle_worker_v2")


def _logits_of(worker: Any, call: Any) -> list[Any]:
    """Run ``call`` and collect the logits outputs of the draft runner meanwhile."""
    runner = worker.draft_runner
    outputs = []
    original = runner.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        outputs.append(result.logits_output)
        return result

    runner.forward = forward
    try:
        call()
    finally:
        del runner.forward
    return outputs


def _watch(module: Any) -> None:
    draft, worker = module.EagleDraftWorker, module.EAGLEWorkerV2
    _watch_choice(module)
    extends = ("_draft_extend_for_prefill", "_draft_extend_for_decode")
    for name in extends:
        _watch_extend(draft, name)
    original_draft, original_verify = draft.draft, worker.verify

    def watched_draft(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        results = []
        chosen.clear()
        outputs = _logits_of(
            self, lambda: results.append(original_draft(self, batch, *args, **kwargs))
        )
        for row, request in enumerate(batch.reqs):
            beams = range(row * self.topk, (row + 1) * self.topk)
            later[request.rid] = [
                {paths[beam]: output.next_token_logits[beam].tolist() for beam in beams}
                for paths, output in zip(chosen, outputs, strict=False)
            ]
        return results[0]

    def watched_verify(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        info, requests = batch.spec_info, list(batch.reqs)
        width = info.draft_token_num
        drafts = info.draft_token.view(-1, width).tolist()
        children, siblings = info.retrieve_next_token.tolist(), info.retrieve_next_sibling.tolist()
        result = original_verify(self, batch, *args, **kwargs)
        hot = self._draft_worker.hot_token_id.tolist()
        target = result.logits_output.next_token_logits.view(len(requests), width, -1)
        tokens = result.next_token_ids.view(-1, width).tolist()
        with open(os.environ[VARIABLE], "a", encoding="utf-8") as file:
            for row, request in enumerate(requests):
                number = rounds.get(request.rid, 0)
                rounds[request.rid] = number + 1
                position = int(result.accept_lens[row]) - 1
                if position == info.spec_steps:
                    continue
                right = tokens[row][:position]
                node = 0
                for token in right:
                    below = _below(node, children[row], siblings[row])
                    node = next(child for child in below if drafts[row][child] == token)
                below = _below(node, children[row], siblings[row])
                steps = [{(): first[request.rid]}, *later[request.rid]]
                logits = steps[position].get(tuple(right))
                favourite = int(target[row, node].argmax())
                line = {
                    "rid": request.rid,
                    "round": number,
                    "position": position,
                    "rank": None if logits is None else _rank(tokens[row][position], logits, hot),
                    "matches": favourite in [drafts[row][child] for child in below],
                    "unexpanded": logits is None,
                }
                file.write(json.dumps(line) + "\n")
        return result

    draft.draft, worker.verify = watched_draft, watched_verify


def _watch_extend(draft: Any, name: str) -> None:
    original = getattr(draft, name)

    def watched(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        results = []
        outputs = _logits_of(self, lambda: results.append(original(self, batch, *args, **kwargs)))
        # The worker has selected one row a request by now.
        for row, request in enumerate(batch.reqs):
            first[request.rid] = outputs[-1].next_token_logits[row].tolist()
        return results[0]

    setattr(draft, name, watched)


def _watch_choice(module: Any) -> None:
    original = module.select_top_k_tokens

    def watched(i: int, topk_p: Any, topk_index: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(i, topk_p, topk_index, *args, **kwargs)
        tokens, info = result[0].tolist(), result[3]
        if i == 0:
            chosen.append([(token,) for token in tokens])
        else:
            topk = args[-1]
            places = (info[2] - (topk * topk * (i - 1) + topk)).flatten().tolist()
            chosen.append(
                [
                    (*chosen[-1][beam // topk * topk + place // topk], tokens[beam])
                    for beam, place in enumerate(places)
                ]
            )
        return result

    module.select_top_k_tokens = watched


def _below(node: int, children: list[int], siblings: list[int]) -> list[int]:
    found = []
    child = children[node]
    while child >= 0:
        found.append(child)
        child = siblings[child]
    return found


def _rank(token: int, logits: list[float], hot: list[int]) -> int | None:
    order = sorted(range(len(hot)), key=lambda i: -logits[i])
    ranked = [hot[i] for i in order]
    return ranked.index(token) + 1 if token in ranked else None
