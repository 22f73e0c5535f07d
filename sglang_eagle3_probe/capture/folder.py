"""The folder of capture files: made readable by the owner alone, and never past its budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .layout import PieceInfo, piece_name
from .writing import piece_bytes, write_piece

if TYPE_CHECKING:
    import torch

DESCRIPTION_BYTES = 4096
"""A piece's description takes less."""


class BudgetReached(Exception):
    """The piece was not written: the files of this process would take more than they may."""


class CaptureFolder:
    """Files of one process. For one thread."""

    def __init__(self, folder: Path, process: str, budget_bytes: int) -> None:
        """Does no I/O.

        Args:
            process: what tells processes apart, such as ``host-4711-tp0``.
            budget_bytes: all files of this process together.
        """
        self.folder = folder
        self._process = process
        self._budget = budget_bytes
        self.used_bytes = 0

    def write(
        self, number: int, info: PieceInfo, tensors: Mapping[str, torch.Tensor]
    ) -> tuple[Path, int]:
        """Writes a piece of the request with that number. Returns the file and its bytes.

        Raises:
            BudgetReached: it would not fit; nothing was written.
            OSError: the folder or the file cannot be written.
            ValueError: the tensors do not fit the description.
        """
        if self.used_bytes + piece_bytes(tensors) + DESCRIPTION_BYTES > self._budget:
            raise BudgetReached
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / piece_name(number, info.piece, self._process)
        size = write_piece(path, info, tensors)
        self.used_bytes += size
        return path, size
