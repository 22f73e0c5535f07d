"""The same numbers from the same files, the way one would write it with pandas.

Usage: with_pandas.py DIR json|pyarrow. Prints rounds, requests and accept length.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas

LINES = 100_000
"""Lines at a time: whole files take several GB."""
COLUMNS = ["rids", "steps", "correct_drafts"]


def rounds_of_file(path: Path) -> Iterator[pandas.DataFrame]:
    """pandas' own JSON reader."""
    reader = pandas.read_json(path, lines=True, chunksize=LINES, dtype=False)
    for chunk in reader:
        yield chunk.loc[chunk["type"] == "verify_round", COLUMNS]


def rounds_of_file_by_arrow(path: Path) -> Iterator[pandas.DataFrame]:
    """Arrow's reader, which takes lines of one shape only: verify rounds are sorted out first."""
    with path.open("rb") as lines:
        chosen = b"".join(line for line in lines if line.startswith(b'{"type":"verify_round"'))
    table = pandas.read_json(io.BytesIO(chosen), lines=True, engine="pyarrow")
    yield table[COLUMNS]


def main() -> None:
    """Count."""
    outcomes: Counter[tuple[str, int, int]] = Counter()
    read = rounds_of_file if sys.argv[2] == "json" else rounds_of_file_by_arrow
    for path in sorted(Path(sys.argv[1]).iterdir()):
        for rounds in read(path):
            flat = rounds.explode(["rids", "correct_drafts"])
            outcomes.update(flat.groupby(COLUMNS).size().to_dict())
    total = sum(outcomes.values())
    correct = sum(c * n for (_, _, c), n in outcomes.items())
    print(total, len({rid for rid, _, _ in outcomes}), round(correct / total + 1, 6))


main()
