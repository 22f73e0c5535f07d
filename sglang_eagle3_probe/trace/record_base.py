"""What every trace line has in common."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, kw_only=True, omit_defaults=False, tag_field="type"):
    """Common part. The recorder fills these three when the record is handed over.

    seq: position in this process's trace, from 0; a gap is a lost record. -1 in a header, which is
    repeated in every part.
    monotonic_s: ``time.monotonic()`` of this process. wall_s: seconds since the epoch.
    """

    seq: int = -1
    monotonic_s: float = 0.0
    wall_s: float = 0.0
