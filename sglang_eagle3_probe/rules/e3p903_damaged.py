"""E3P903: the trace files are damaged, or the probe could not attach."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, Severity, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.trace.reader import Problem

PAGE = Page(
    checks="Torn or unreadable lines, a missing header or first part, gaps in the sequence, record "
    "types this version does not know, and seams (places of SGLang the probe attaches to) that "
    "failed.",
    why="What is not in the trace cannot be judged. A last line cut off is normal after a kill and "
    "only noted.",
    evidence="The files themselves and the `seams` record.",
    fix="For files: read them where they were written, whole. For seams: the reason stands in the "
    "record; a newer probe may know this SGLang.",
    ignore="Single torn lines after a full disk.",
)

_NORMAL = {"torn_last_line"}
_FIXES = {
    "torn_line": "nothing if the disk was full for a while; else copy the files again, whole",
    "unreadable": "run this as the user that ran the server",
    "newer_format": "pip install -U sglang-eagle3-probe on this machine",
    "unknown_type": "pip install -U sglang-eagle3-probe on this machine",
    "bad_record": "use the probe version that wrote the trace, or report this",
    "no_header": "read the directory as the server wrote it; the first line of each file is needed",
    "no_first_part": "read the directory with its part0 file, which holds the wiring",
    "gap": "nothing if files were deleted; else report this to sglang-eagle3-probe",
    "torn_last_line": "nothing: the server was killed, or it still writes",
}


def _severity(problem: Problem, rank: RankEvidence) -> Severity:
    # While the server still writes, parts are read at different moments, so that a few records
    # seem to be missing.
    live = problem.kind == "gap" and not rank.ended_in_order
    return "note" if problem.kind in _NORMAL or live else "warning"


def _check(rank: RankEvidence) -> list[Result]:
    results: list[Result] = [
        RULE.finding(
            _severity(problem, rank),
            f"{problem.file}: {problem.detail}"
            + (f" ({problem.count})" if problem.count > 1 else ""),
            [Seen(problem.kind, problem.count, problem.file)],
            _FIXES.get(problem.kind, "report this to sglang-eagle3-probe"),
        )
        for problem in rank.problems
    ]
    for seam in rank.seams.seams if rank.seams is not None else []:
        if seam.state == "failed":
            results.append(
                RULE.finding(
                    "warning",
                    f"the probe could not attach to {seam.target}: {seam.why or 'no reason given'}",
                    [
                        Seen("seam", seam.name, "seams"),
                        Seen("needed by", seam.used_by, "seams.used_by"),
                    ],
                    "what it feeds is missing from the trace; update sglang-eagle3-probe or report "
                    "this with your SGLang version",
                )
            )
    return results


RULE = Rule("E3P903", "trace damaged or seam failed", PAGE, per_rank(_check))
