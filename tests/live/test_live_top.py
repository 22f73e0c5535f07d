"""``top`` beside a real server: from before it starts until after it is started again."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from conftest import Models
from probed import accept_length, cli, probed_pair

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "cli"))
from terminal import terminal

TOP = [sys.executable, "-m", "sglang_eagle3_probe.cli.main", "top"]


def test_top_beside_a_server_and_its_successor(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    with terminal([*TOP, str(traces), "--interval", "0.5"], os.environ) as window:
        # Where the line is broken depends on how long the path is.
        window.until("waiting: ")
        with probed_pair(
            models,
            tmp_path / "first",
            trace_directory=traces,
            variables={"level": "stats", "refusal_every": "1"},
        ) as run:
            window.until("captures output ids o [-1, 2, 5] (h [0, 3, 6])", 60)
            answers = run.server.generate(prompts, max_new_tokens=64)
            run.rounds_match(answers)
            rounds = sum(a.meta_info["spec_verify_ct"] for a in answers)
            shown = window.until(f"since start ({rounds})")
            text = "\n".join(shown)
            assert f"{accept_length(answers):.2f} last minute (" in text
            assert re.search(r"scheduler tp0 +\d+\.\d +\d+\.\d .*running", text), text
            assert "losses: none" in text
            window.until("draft had it second", 60)

            once = cli("top", str(traces), "--once")
            assert once.returncode == 0
            assert f"{accept_length(answers):.2f} since start ({rounds})" in once.stdout
            histogram = [a.meta_info["spec_correct_drafts_histogram"] for a in answers]
            for position in range(3):
                right = sum(n for h in histogram for c, n in enumerate(h) if c > position)
                [line] = [
                    x for x in once.stdout.splitlines() if x.strip().startswith(f"{position} ")
                ]
                assert f"{right / rounds:.3f}" in line
        with probed_pair(models, tmp_path / "second", trace_directory=traces) as run:
            window.until("newest of 2 runs", 60)
            answers = run.server.generate(prompts[:2], max_new_tokens=24)
            rounds = sum(a.meta_info["spec_verify_ct"] for a in answers)
            text = "\n".join(window.until(f"since start ({rounds})"))
            assert "level wiring" in text
        window.until("quiet", 60)
        window.type("q")
        assert window.end() == 0
