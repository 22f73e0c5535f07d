"""``patch-source --sglang-dir DIR``: the behaviour patches in SGLang's own files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.source_patches.applying import bring, refuse_others
from sglang_eagle3_probe.source_patches.series import Series, SourcePatchError, load
from sglang_eagle3_probe.source_patches.tree import Tree, find, states


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "patch-source",
        help="put the behaviour patches into SGLang's own files, for an image of your own",
        description="Adds the behaviour patches to the files of an SGLang release, so that it "
        "serves without the plugin what it serves with it. The release and the content of every "
        "file are checked before anything is written. Exit code 0 when the files are as asked; "
        "with --check 0 patched, 1 not patched, 2 neither.",
    )
    command.add_argument(
        "--sglang-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="site-packages, the package sglang in it, or a checkout of SGLang",
    )
    action = command.add_mutually_exclusive_group()
    action.add_argument(
        "--check", action="store_true", help="write nothing; say what the files are"
    )
    action.add_argument("--reverse", action="store_true", help="put the release's own files back")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it and say what was done."""
    try:
        tree = find(options.sglang_dir)
        series = load(tree.release)
        if options.check:
            return _check(tree, series)
        written = bring(tree, series, "pristine" if options.reverse else "patched")
    except SourcePatchError as error:
        raise UsageError(str(error)) from None
    where = f"SGLang {tree.release} in {tree.root}"
    if not written:
        state = "not patched" if options.reverse else f"already patched ({', '.join(series.names)})"
        print(f"{where} is {state}; nothing was written.")
        return 0
    done = "is as released again" if options.reverse else f"is patched: {', '.join(series.names)}"
    print(f"{where} {done}.")
    for file in written:
        print(f"  {file}")
    print("A server that is running keeps what it has loaded: restart it.")
    return 0


def _check(tree: Tree, series: Series) -> int:
    found = states(tree, series)
    print(f"SGLang {tree.release} (from {tree.said_by}) in {tree.root}")
    for state in found:
        print(f"  {state.state:<9} {state.file}")
    refuse_others(tree, series, found)
    return 0 if all(state.state == "patched" for state in found) else 1
