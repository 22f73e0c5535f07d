"""Runs inside one SGLang release: what the hooks of level ``capture`` read off a target's layers.

Started as a script with a file of ``{"start": {...}, "targets": [{"target", "draft"}, ...]}`` and
one for the answers. As in real_sglang: one real forward, attention and experts as stand-ins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import real_forward
import real_sglang

from sglang_eagle3_probe.host.guard import Guard
from sglang_eagle3_probe.taps.capture_layers import LayersTap


def main(given: Path, answer: Path) -> None:
    """Answer for every target of the file."""
    real_sglang.allow_second_registration()
    questions = json.loads(given.read_text(encoding="utf-8"))
    real_sglang.start_process_group(questions["start"], given.parent)
    answers = [layers_read(case) for case in questions["targets"]]
    import sglang

    whole = {"release": sglang.__version__, "targets": answers}
    answer.write_text(json.dumps(whole), encoding="utf-8")


def layers_read(case: dict[str, Any]) -> dict[str, Any]:
    """Per boundary: how far what the hooks kept is from the stream, as a share of its greatest."""
    faults: list[str] = []
    watched: dict[str, Any] = {}
    stream_of = real_forward.Stream

    class Watched(stream_of):  # type: ignore[misc, valid-type]
        def __init__(self, decoder: Any) -> None:
            super().__init__(decoder)
            session = SimpleNamespace(
                settings=SimpleNamespace(capture_buffer_mb=1),
                guard=Guard(1000, lambda fault: faults.append(fault.error)),
                say=lambda *_: None,
            )
            tap = LayersTap(session, lambda: True)  # type: ignore[arg-type]
            tap.watch(SimpleNamespace(model=decoder))
            watched.update(tap=tap, stream=self)

    real_forward.Stream = Watched  # type: ignore[misc]
    try:
        found = real_sglang.guarded(real_sglang.target_capture, case)
    finally:
        real_forward.Stream = stream_of  # type: ignore[misc]
    rows = watched["tap"].rows if watched else None
    if rows is None:
        return {"faults": faults, "not_run": json.dumps(found)[:300]}
    apart, count = {}, 0
    for boundary, state in watched["stream"].states().items():
        count = len(state)
        kept = rows.states[boundary, :count]
        apart[boundary] = float((kept - state).abs().max() / state.abs().max())
    return {
        "whole": rows.is_whole(),
        "apart": apart,
        "norm": float(rows.norm[:count].abs().max()),
        "faults": faults,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
