"""One engine in a process of its own, driven by JSON lines on stdin; answers on a file.

Run by ``engines.py``. stdout and stderr go to a log, because SGLang writes to both.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    """Build the engine, then serve commands until stdin ends."""
    arguments = json.loads(sys.argv[1])
    answers = open(sys.argv[2], "a", encoding="utf-8", buffering=1)  # noqa: SIM115
    began = time.perf_counter()
    import sglang

    engine = sglang.Engine(**arguments)
    _say(answers, {"ready_s": time.perf_counter() - began, "sglang": sglang.__version__})
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        if command.get("flush"):
            engine.flush_cache()
            _say(answers, {"flushed": True})
            continue
        began = time.perf_counter()
        results = engine.generate(
            input_ids=command["prompts"],
            sampling_params={
                "temperature": 0.0,
                "max_new_tokens": command["new_tokens"],
                "ignore_eos": True,
            },
            return_hidden_states=command.get("hidden", False),
        )
        elapsed = time.perf_counter() - began
        keep = ("spec_verify_ct", "spec_num_correct_drafts", "spec_accepted_drafts", "id")
        answer: dict[str, Any] = {
            "elapsed_s": elapsed,
            "tokens": [r["output_ids"] for r in results],
            "meta": [{k: r["meta_info"][k] for k in keep if k in r["meta_info"]} for r in results],
        }
        if command.get("hidden") and command.get("keep_hidden"):
            answer["hidden"] = [r["meta_info"]["hidden_states"] for r in results]
        _say(answers, answer)
    engine.shutdown()


def _say(answers: Any, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
