"""One verify round through a release's own result processor, with the probe around it.

Part of the worker, beside probed_target. The names of SGLang's counters changed at 0.5.11, 0.5.12
and 0.5.13; here its own code moves them, and the probe's records are what came of it.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

DRAFT_TOKENS = 4
ACCEPT_LENS = (3, 1)


def verify_round(session: Any) -> dict[str, Any]:
    """Two requests, two rounds, then their end."""
    import torch
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from sglang_eagle3_probe.taps.requests import request_end
    from sglang_eagle3_probe.trace.acceptance_records import VerifyRound

    records: list[Any] = []
    session.feed = SimpleNamespace(put=records.append)
    requests = [
        Req(rid, "", [1, 2, 3], SamplingParams(max_new_tokens=9, temperature=0.0)) for rid in "ab"
    ]
    for request in requests:
        request.kv = SimpleNamespace(kv_committed_len=3)
    worker = SimpleNamespace(
        speculative_num_draft_tokens=DRAFT_TOKENS,
        speculative_num_steps=DRAFT_TOKENS - 1,
        topk=1,
        on_verify_complete_cpu=lambda *_, **__: None,
    )
    owner, resolve = processor(session)
    parts = {"draft_worker": worker, "model_worker": worker, "metrics_reporter": MagicMock()}
    for name, part in parts.items():
        object.__setattr__(owner, name, part)  # a frozen dataclass in later releases
    algorithm = SpeculativeAlgorithm.from_string("EAGLE3")
    batch = SimpleNamespace(reqs=requests, spec_algorithm=algorithm, has_grammar=False)
    for _ in range(2):
        values = {
            "accept_lens": torch.tensor(ACCEPT_LENS),
            "next_token_ids": torch.arange(2 * DRAFT_TOKENS),
            "speculative_num_draft_tokens": DRAFT_TOKENS,
        }
        known = GenerationBatchResult.__dataclass_fields__
        result = GenerationBatchResult(**{k: v for k, v in values.items() if k in known})
        tokens = resolve(result, batch)
    session.feed = None
    rounds = [record for record in records if isinstance(record, VerifyRound)]
    ends = [request_end(ended(request), request.rid) for request in requests]
    return {
        "tokens": [list(row) for row in tokens],
        "correct_drafts": [record.correct_drafts for record in rounds],
        "rounds": [record.rounds for record in rounds],
        "proposed": [record.proposed_drafts for record in rounds],
        "starts": sum(type(record).__name__ == "RequestStart" for record in records),
        "ends": [[end.verify_rounds, end.correct_drafts, end.histogram] for end in ends],
    }


def processor(session: Any) -> tuple[Any, Any]:
    """An object of the class that the seam ``verify_result`` names in this release; its method."""
    from sglang_eagle3_probe.host.seams import SCHEDULER_SEAMS, seams_for

    [seam] = [s for s in seams_for(session.release, SCHEDULER_SEAMS) if s.name == "verify_result"]
    name, _, method = seam.attribute.partition(".")
    cls = getattr(importlib.import_module(seam.module), name)
    owner = object.__new__(type("Processor", (cls,), {}))
    return owner, getattr(owner, method)


def ended(request: Any) -> Any:
    """A request as it is when it is sent to the detokenizer."""
    from sglang.srt.managers.schedule_batch import FINISH_LENGTH

    request.finished_reason = FINISH_LENGTH(length=9)
    return request
