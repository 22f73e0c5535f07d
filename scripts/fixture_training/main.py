#!/usr/bin/env python3
"""Make the fixture models of tests/fixtures again: text, tokenizer, targets, drafts.

    scripts/train_fixtures                       on two CPU cores; 26 minutes
    scripts/train_fixtures --device cuda         the same recipe on a GPU, a few minutes
    scripts/train_fixtures --scratch DIR --resume    go on where an earlier run stopped

Needs torch, transformers, tokenizers, safetensors and numpy. Reads no network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from fixture_training.stages import Stages  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "tests" / "fixtures")
    parser.add_argument("--scratch", type=Path, help="keep intermediate results here")
    parser.add_argument("--resume", action="store_true", help="use what --scratch holds already")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--stdlib", type=Path, help="read the text from another Python's library")
    arguments = parser.parse_args()
    if arguments.resume and arguments.scratch is None:
        parser.error("--resume needs --scratch")

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fixtures-") as temporary:
        scratch = arguments.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        stages = Stages(
            output=arguments.output,
            scratch=scratch,
            device=arguments.device,
            stdlib=arguments.stdlib,
            resume=arguments.resume,
        )
        stages.run()
    print(f"done in {(time.monotonic() - started) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
