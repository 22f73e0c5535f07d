"""``doctor``: names wiring faults from two configs and headers, before anything runs."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from sglang_eagle3_probe.checkpoint.arguments import parse_arguments
from sglang_eagle3_probe.checkpoint.embeddings import compared_embeddings
from sglang_eagle3_probe.checkpoint.facts import CheckpointFacts, Situation
from sglang_eagle3_probe.checkpoint.overrides import with_overrides
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.checkpoint.tokens import count_tokens
from sglang_eagle3_probe.cli import explain
from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.report import doctor as report
from sglang_eagle3_probe.report.lines import clean, show, width_of
from sglang_eagle3_probe.rules.static.base import ALIASES, LLAMA, MLA
from sglang_eagle3_probe.source_patches.series import SourcePatchError, load
from sglang_eagle3_probe.source_patches.tree import find, states
from sglang_eagle3_probe.trace.garbage import no_search_for_cycles

INSTALLED = "the installed one"


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "doctor",
        help="judge a target and a draft from their files, before anything runs",
        description="Reads two configs and the draft's safetensors headers, and of weights only "
        "the vocabulary map and some rows of an embedding. Names what would be wired wrongly. "
        "Needs neither SGLang nor a GPU. Exit code 1 when there are errors or warnings.",
    )
    place = "folder, config.json, or a model in the local Hugging Face cache"
    command.add_argument("--target", metavar="PLACE", help=place)
    command.add_argument("--draft", metavar="PLACE", help=place)
    command.add_argument(
        "--sglang-version",
        metavar="V",
        help="release to judge, such as 0.5.23 (default: the installed one, else the newest known)",
    )
    command.add_argument(
        "--patched-source",
        action="store_true",
        help="judge an SGLang whose files were patched with patch-source (default: what the "
        "installed one is; any other as released)",
    )
    command.add_argument(
        "--args", metavar="TEXT", help="the server's flags: --args='--speculative-num-steps 3 ...'"
    )
    command.add_argument(
        "--tokens", metavar="FILE", help="token ids or text, to see what the draft's map covers"
    )
    command.add_argument("--json", action="store_true", help="JSON instead of text")
    command.add_argument(
        "--explain-ids", action="store_true", help="show the layer ids in every unit"
    )
    command.add_argument("--list", action="store_true", help="list the rules and leave")
    command.add_argument("--explain", metavar="CODE", help="print a rule's page and leave")
    command.set_defaults(run=run)


def rules() -> tuple[report.CheckRule, ...]:
    """Every static rule, in the order they are reported."""
    from sglang_eagle3_probe.rules.static.registry import RULES

    return tuple(cast("report.CheckRule", rule) for rule in RULES)


def run(options: argparse.Namespace) -> int:
    """Judge and print."""
    if options.list:
        for rule in sorted(rules(), key=lambda rule: rule.code):
            print(f"{rule.code}  {rule.title}")
        return 0
    if options.explain is not None:
        return explain.run(argparse.Namespace(code=options.explain))
    missing = [f"--{name}" for name in ("target", "draft") if getattr(options, name) is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} missing. Fix: name the target's and the draft's folder or "
            "config.json"
        )
    release, release_from = _release(options.sglang_version)
    installed = options.sglang_version is None and release_from == INSTALLED
    patched = options.patched_source or (installed and _installed_is_patched())
    arguments = parse_arguments(options.args or "")
    with no_search_for_cycles():
        target = read_checkpoint(options.target, headers=False)
        draft = read_checkpoint(options.draft)
        rows = compared_embeddings(options.target, options.draft, draft)
        counts = count_tokens(options.tokens, options.target) if options.tokens else None
    if _is_draft(target) and conventions.lookup(draft.architecture) is not None:
        raise UsageError(
            f"--target is an EAGLE-3 draft ({clean(target.architecture)}) and --draft a target "
            f"({clean(draft.architecture)}). Fix: give them the other way round"
        )
    situation = with_overrides(
        Situation(
            target, draft, release, arguments, counts, embedding_rows=rows, source_patched=patched
        )
    )
    diagnosis = report.diagnose(situation, release_from, rules())
    if options.json:
        print(report.as_json(diagnosis, ids=options.explain_ids))
    else:
        show(report.as_lines(diagnosis, width_of(sys.stdout), ids=options.explain_ids))
    return diagnosis.exit_code


def _is_draft(facts: CheckpointFacts) -> bool:
    return facts.architecture in {LLAMA, MLA, *ALIASES}


def _release(given: str | None) -> tuple[str, str]:
    newest = ".".join(map(str, conventions.NEWEST_READ))
    if given is None:
        try:
            installed = metadata.version("sglang")
            conventions.release(installed)
        except (metadata.PackageNotFoundError, ValueError):
            return newest, "newest known; --sglang-version names another"
        return installed, INSTALLED
    try:
        number = conventions.release(given)
    except ValueError as error:
        raise UsageError(f"--sglang-version: {clean(error)}") from None
    if number > conventions.NEWEST_READ:
        return given, f"as asked; newer than the newest known, {newest}, so not proved"
    if number < conventions.OLDEST_READ:
        return given, "as asked; older than the oldest known, so not proved"
    return given, "as asked"


def _installed_is_patched() -> bool:
    """Whether ``patch-source`` was run on the installed SGLang. Finds it without importing it."""
    found = importlib.util.find_spec("sglang")
    places = found.submodule_search_locations if found is not None else None
    if not places:
        return False
    try:
        tree = find(Path(next(iter(places))))
        return all(state.state == "patched" for state in states(tree, load(tree.release)))
    except (SourcePatchError, OSError):
        return False
