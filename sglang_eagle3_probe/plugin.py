"""The entry point that SGLang calls in each of its processes: decides what this one needs.

Group ``sglang.srt.plugins``, SGLang 0.5.11 and later; before, ``launch_server`` calls it. Installed
means inert: in the process that parses the command line two flags are added, and without them (or
SGLANG_EAGLE3_PROBE=1) nothing else ever happens. What is wrapped is wrapped when SGLang imports it;
nothing is imported here.
"""

from __future__ import annotations

import multiprocessing
import sys

from . import settings

_registered = False


def register() -> None:
    """Called by SGLang's plugin loader, possibly several times per process."""
    global _registered
    if _registered:
        return
    _registered = True
    if multiprocessing.parent_process() is None:
        _register_main()
    else:
        _register_spawned()


def register_spawned() -> None:
    """The same in a process that knows it was spawned, before ``multiprocessing`` says so.

    ``launch_server`` calls it while a spawned process imports the main module again; SGLang's
    plugin loader comes later, if there is one, and finds it done.
    """
    global _registered
    if not _registered:
        _registered = True
        _register_spawned()


def _register_spawned() -> None:
    try:
        if not settings.is_enabled():
            return
        chosen = settings.Settings.from_environment()
    except settings.SettingsError as error:
        _refuse(error)
    from .attach import attach_scheduler

    attach_scheduler(chosen)


def _register_main() -> None:
    from .attach import attach_command_line

    attach_command_line()
    try:
        if settings.is_enabled():
            settings.Settings.from_environment()
    except settings.SettingsError as error:
        _refuse(error)


def _refuse(error: settings.SettingsError) -> None:
    """End the process. The loader swallows exceptions, and serving on would ignore the user."""
    sys.exit(f"sglang-eagle3-probe: {error} Nothing was started.")
