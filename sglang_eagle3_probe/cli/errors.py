"""Trouble that the user can repair."""

from __future__ import annotations


class UsageError(Exception):
    """The command cannot do what was asked. The message says what, and a fix."""


NEEDS_RICH = (
    "this report is printed with rich, which is not installed; --json works without it. "
    "Fix: pip install 'sglang-eagle3-probe[report]'"
)

NEEDS_JINJA2 = (
    "the HTML report is made with jinja2 and rich, of which {missing} is not installed; nothing "
    "was written. Fix: pip install 'sglang-eagle3-probe[report]'"
)

NEEDS_PYARROW = (
    "Parquet is written with pyarrow, which is not installed; nothing was written. "
    "Fix: pip install 'sglang-eagle3-probe[parquet]'"
)

NEEDS_TORCH = (
    "{command} computes with torch and reads safetensors, which are not installed. "
    "Fix: pip install 'sglang-eagle3-probe[offline]'"
)
