"""Keeps the probe's exceptions away from the host.

Every line of ours that runs inside a host call runs inside ``with site:``. The host's own calls
never do, so its exceptions pass untouched.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType

from ..trace.records import Fault

logger = logging.getLogger("sglang_eagle3_probe")


class ProbeConfigurationError(RuntimeError):
    """A patch that the user asked for cannot be applied; serving on would serve wrongly.

    The one exception of ours that leaves the probe: it stops the start-up of the server.
    """


class InducedFault(RuntimeError):
    """Raised at a site named in SGLANG_EAGLE3_PROBE_FAIL_SITE, to test what the host feels."""


class Site:
    """A named place of ours inside the host. Re-entrant, one object per name."""

    __slots__ = ("_guard", "enabled", "faults", "induced", "name")

    def __init__(self, guard: Guard, name: str, *, induced: bool) -> None:
        self._guard = guard
        self.name = name
        self.enabled = True
        self.faults = 0
        self.induced = induced

    def __enter__(self) -> Site:
        return self

    def check(self) -> None:
        """First call inside the block: raises when a test asked this site to fail."""
        if self.induced:
            raise InducedFault(f"asked to fail at {self.name}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            return False
        if isinstance(error, ProbeConfigurationError) or not isinstance(error, Exception):
            return False
        self._guard.caught(self, error)
        return True


class Guard:
    """Counts faults per site, says each site's first one in the log, switches a bad site off."""

    def __init__(
        self,
        fault_limit: int,
        report: Callable[[Fault], None],
        induced_sites: Iterable[str] = (),
    ) -> None:
        """
        Args:
            fault_limit: a site that raised this often is off for the rest of the process.
            report: takes the trace record of a fault; must not raise.
            induced_sites: names of sites that shall raise on every call (tests).
        """
        self._limit = fault_limit
        self._report = report
        self._induced = frozenset(induced_sites)
        self._sites: dict[str, Site] = {}

    def site(self, name: str) -> Site:
        """The site of that name; the same object on every call."""
        found = self._sites.get(name)
        if found is None:
            found = Site(self, name, induced=name in self._induced)
            self._sites[name] = found
        return found

    def caught(self, site: Site, error: Exception) -> None:
        """Count, log and record a fault of ours. Never raises."""
        try:
            site.faults += 1
            if site.faults >= self._limit:
                site.enabled = False
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            if site.faults == 1:
                logger.warning(
                    "eagle3-probe: tap %s raised %s: %s. The server is not affected; this tap's "
                    "records are incomplete. Fix: report it with this traceback.\n%s",
                    site.name,
                    type(error).__name__,
                    error,
                    text,
                )
            elif not site.enabled:
                logger.warning(
                    "eagle3-probe: tap %s raised %d times and is off now; "
                    "the server and the other taps go on.",
                    site.name,
                    site.faults,
                )
            self._report(
                Fault(
                    site=site.name,
                    error=f"{type(error).__name__}: {error}",
                    traceback=text if site.faults == 1 else "",
                    count=site.faults,
                    disabled=not site.enabled,
                )
            )
        except Exception:
            site.enabled = False
