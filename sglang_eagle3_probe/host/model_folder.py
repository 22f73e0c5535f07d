"""The local folder of a model as SGLang names it: a path, or a hub id at a revision."""

from __future__ import annotations

import os
from pathlib import Path

from ..settings import hub_cache


def local_model(given: str, revision: str | None) -> str:
    """What a checkpoint reader can open for this model; reads the local cache, never the network.

    Args:
        given: ``model_path`` or ``speculative_draft_model_path``.
        revision: ``revision`` or ``speculative_draft_model_revision``; a branch, tag or commit.
            Only a hub id has one.

    Returns:
        The folder of that revision's snapshot, or ``given`` itself where there is none.
    """
    parts = given.split("/")
    if not revision or os.path.lexists(given) or len(parts) != 2 or not all(parts):
        return given
    entry = hub_cache() / f"models--{parts[0]}--{parts[1]}"
    named = entry / "refs" / revision
    try:
        commit = named.read_text(encoding="utf-8").strip() if named.is_file() else revision
    except (OSError, ValueError):
        return given
    if Path(commit).name != commit or commit.startswith("."):
        return given
    folder = entry / "snapshots" / commit
    # Another revision than the one served would be judged if this fell back on the entry.
    return str(folder)
