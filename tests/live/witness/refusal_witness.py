"""An SGLang plugin that watches refusals by its own means: Python lists by request id, and sorting.

Nothing is shared with the probe. It writes one JSON line per request and verify round to the file
that REFUSAL_WITNESS names: rid, how often it was seen verified before, position, rank, whether the
refused draft was the target's argmax.
"""

from __future__ import annotations

import json
import os
from typing import Any

import wrapt

VARIABLE = "REFUSAL_WITNESS"

first: dict[str, Any] = {}
"""rid -> logits that its next first draft is taken from."""
later: dict[str, list[Any]] = {}
"""rid -> logits of the decode steps of the round."""
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
    extends = ("_draft_extend_for_prefill", "_draft_extend_for_decode")
    for name in extends:
        _watch_extend(draft, name)
    original_draft, original_verify = draft.draft, worker.verify

    def watched_draft(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        results = []
        outputs = _logits_of(
            self, lambda: results.append(original_draft(self, batch, *args, **kwargs))
        )
        for row, request in enumerate(batch.reqs):
            later[request.rid] = [o.next_token_logits[row].tolist() for o in outputs]
        return results[0]

    def watched_verify(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        info, requests = batch.spec_info, list(batch.reqs)
        width = info.draft_token_num
        drafts = info.draft_token.view(-1, width).tolist()
        result = original_verify(self, batch, *args, **kwargs)
        hot = self._draft_worker.hot_token_id.tolist()
        target = result.logits_output.next_token_logits.view(len(requests), width, -1)
        tokens = result.next_token_ids.view(-1, width).tolist()
        with open(os.environ[VARIABLE], "a", encoding="utf-8") as file:
            for row, request in enumerate(requests):
                number = rounds.get(request.rid, 0)
                rounds[request.rid] = number + 1
                position = int(result.accept_lens[row]) - 1
                if position == width - 1:
                    continue
                steps = [first[request.rid], *later[request.rid]]
                order = sorted(range(len(hot)), key=lambda i: -steps[position][i])
                ranked = [hot[i] for i in order]
                token = tokens[row][position]
                rank = ranked.index(token) + 1 if token in ranked else None
                favourite = int(target[row, position].argmax())
                line = {
                    "rid": request.rid,
                    "round": number,
                    "position": position,
                    "rank": rank,
                    "matches": favourite == drafts[row][position + 1],
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
