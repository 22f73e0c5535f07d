"""What rules on acceptance say about the wiring rules before them."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.base import Finding, Result


def errors(earlier: Sequence[Result]) -> list[str]:
    """Codes of the errors found so far: the likely causes of bad acceptance."""
    return sorted({r.code for r in earlier if isinstance(r, Finding) and r.severity == "error"})


def repair_first(codes: Sequence[str], otherwise: str) -> str:
    """The fix: the errors if there are any."""
    return f"repair {', '.join(codes)} first, then measure again" if codes else otherwise
