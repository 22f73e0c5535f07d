"""Starts SGLang's own server in this process, as ``python -m sglang.launch_server`` would."""

from __future__ import annotations

import importlib.util
import runpy
import sys

SERVER = "sglang.launch_server"


def serve() -> None:
    """Run SGLang's launcher on this process's command line; returns when the server has ended.

    ``__main__`` stays who it is: processes that SGLang spawns import it again before anything of
    SGLang, which is how they get the probe too.
    """
    if importlib.util.find_spec("sglang") is None:
        sys.exit(
            "sglang-eagle3-probe: SGLang is not installed in this Python environment. Nothing was "
            "started. Fix: install it (pip install sglang), or use the environment that has it."
        )
    runpy.run_module(SERVER, run_name="__main__")
