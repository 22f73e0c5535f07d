"""Makes the packages under tests/ importable (``from rig.server import RigServer``), and Ctrl-C
something that the commands under test can be told by."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # So it is in a shell's background job, and what the tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
