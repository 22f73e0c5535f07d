from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_release import DIFFS, FILES, PATCHED, by_series

from sglang_eagle3_probe.source_patches.unified import (
    DiffError,
    FileAdditions,
    Hunk,
    added,
    parse,
    removed,
)


@pytest.mark.parametrize("file", list(FILES))
def test_a_series_adds_its_lines_where_they_belong(file: str) -> None:
    assert by_series(file) == PATCHED[file]


lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"    c = 1\n"]), max_size=12)


@given(lines, st.data())
def test_removing_undoes_adding(content: list[bytes], data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(content)), min_size=1))
    hunks = tuple(
        Hunk(after, tuple(data.draw(lines.filter(bool), label=f"after {after}")))
        for after in sorted(places)
    )
    additions = FileAdditions("f.py", hunks)
    before = b"".join(content)
    after = added(additions, before)
    assert len(after) == len(before) + sum(len(line) for h in hunks for line in h.lines)
    assert removed(additions, after) == before


def test_removing_what_is_not_there_is_refused() -> None:
    (part,) = parse(DIFFS["0002-second"])
    with pytest.raises(DiffError, match=r"one\.py does not hold the added lines at 3"):
        removed(part, FILES["sglang/srt/one.py"])


def test_a_content_that_is_too_short_is_refused() -> None:
    (part,) = parse(DIFFS["0002-second"])
    with pytest.raises(DiffError, match="has 1 lines, expected 2"):
        added(part, b"a = 1\n")


HEAD = b"--- a/f.py\n+++ b/f.py\n"


@pytest.mark.parametrize(
    "diff",
    [
        b"",
        b"no diff at all\n",
        HEAD,
        b"--- a/f.py\n+++ b/g.py\n@@ -1,0 +2 @@\n+x\n",
        HEAD + b"@@ -1 +1 @@\n-a\n+x\n",
        HEAD + b"@@ -1,0 +2,2 @@\n+x\n",
        HEAD + b"@@ -1,0 +2,2 @@\n+x\n y\n",
        HEAD + b"@@ -1,0 +2 @@ def f():\n+x\n",
        HEAD + b"@@ -1,0 +5 @@\n+x\n",
        HEAD + b"@@ -3,0 +4 @@\n+x\n@@ -1,0 +3 @@\n+y\n",
        HEAD + b"@@ -1,0 +2 @@\n+x\n+y\n",
    ],
)
def test_other_diffs_are_refused(diff: bytes) -> None:
    with pytest.raises(DiffError):
        parse(diff)
