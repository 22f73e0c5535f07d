"""How a request is called in the trace."""

from __future__ import annotations

import hashlib


def rid_digest(rid: str) -> str:
    """12 hex digits for a request id, which itself never enters the trace."""
    return hashlib.blake2b(rid.encode(), digest_size=6).hexdigest()
