"""E3P402: the vocabulary map is wrong."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="The hot_token_id map in force: as many entries as head rows, ids within the target's "
    "vocabulary, strictly increasing, no duplicates, equal to d2t + arange, and the same set as "
    "t2d marks.",
    why="All trainers that prune the vocabulary sort the kept ids and store offsets. A map that is "
    "stale, stored as target ids instead of offsets, or of another size translates proposals into "
    "other tokens than the draft meant.",
    evidence="The `vocab_map` record.",
    fix="Export d2t again together with the head it belongs to: d2t[i] = kept_id[i] - i, kept ids "
    "ascending.",
    ignore="A map that is not increasing can be right if the trainer really kept that order; it is "
    "then a warning only.",
)


def _check(rank: RankEvidence) -> list[Result]:
    found = rank.vocab_map
    if found is None or not found.in_force:
        return []
    wrong: list[str] = []
    doubtful: list[str] = []
    whole = rank.target_vocab_size
    if found.size is not None and found.head_rows is not None and found.size != found.head_rows:
        wrong.append(f"it has {found.size} entries for {found.head_rows} head rows")
    if found.minimum is not None and found.minimum < 0:
        wrong.append(f"its smallest id is {found.minimum}")
    if whole is not None and found.maximum is not None and found.maximum >= whole:
        wrong.append(f"its largest id {found.maximum} is outside the {whole} target tokens")
    if found.duplicates:
        wrong.append(f"{found.duplicates} target ids occur more than once")
    if found.equals_d2t_plus_arange is False:
        wrong.append("it is not d2t + arange of the checkpoint")
    if found.agrees_with_t2d is False:
        wrong.append("it names other tokens than the checkpoint's t2d marks")
    if found.d2t_looks_direct:
        wrong.append("d2t holds target ids themselves, and SGLang added arange to them")
    if found.strictly_increasing is False and not found.duplicates:
        doubtful.append("it is not increasing")
    reduced = whole is not None and found.size is not None and found.size < whole
    if reduced and found.identity_share == 1.0:
        doubtful.append("it maps every draft id to itself, as a d2t of zeros does")
    if not wrong and not doubtful:
        return []
    fix = (
        "store offsets, d2t[i] = target_id[i] - i, in the draft's checkpoint"
        if found.d2t_looks_direct
        else "export d2t again together with the head it belongs to (kept target ids ascending, "
        "d2t[i] = target_id[i] - i)"
    )
    return [
        RULE.finding(
            "error" if wrong else "warning",
            f"the vocabulary map is {'wrong' if wrong else 'doubtful'}: "
            + "; ".join(wrong + doubtful),
            [
                Seen("entries", found.size, "vocab_map.size"),
                Seen("head rows", found.head_rows, "vocab_map.head_rows"),
                Seen("target vocabulary", whole, "vocab_map.target_vocab_size"),
                Seen("ids from, to", [found.minimum, found.maximum], "vocab_map.minimum, .maximum"),
                Seen("digest", found.digest, "vocab_map.digest"),
            ],
            fix,
        )
    ]


RULE = Rule("E3P402", "vocabulary map is wrong", PAGE, per_rank(_check))
