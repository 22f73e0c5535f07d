"""E3P904: an SGLang release the probe was not proved on."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Whether the SGLang release is among those the probe's seam table was checked on.",
    why="On another release the probe attaches where signatures still fit, but what a value means "
    "may have changed.",
    evidence="`seams.release_proved` and `header.sglang_version`.",
    fix="Look for a newer sglang-eagle3-probe; read findings with care until then.",
    ignore="When every seam is patched and the wiring table looks as you expect.",
)


def _check(rank: RankEvidence) -> list[Result]:
    if rank.seams is None or rank.seams.release_proved:
        return []
    version = rank.header.sglang_version if rank.header is not None else "unknown"
    return [
        RULE.finding(
            "note",
            f"SGLang {version} is not among the releases this probe was proved on",
            [Seen("SGLang", version, "header.sglang_version")],
            "pip install -U sglang-eagle3-probe; if that is the newest, check the wiring table "
            "below by eye",
        )
    ]


RULE = Rule("E3P904", "SGLang release not proved", PAGE, per_rank(_check))
