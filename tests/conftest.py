"""Makes the packages under tests/ importable (``from rig.server import RigServer``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
