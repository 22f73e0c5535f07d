"""Room for states on their way out: a region on the device, the same region in pinned host memory.

A parcel is reserved, its tensors are copied in on the current stream, and ``send`` enqueues the
transfer on a stream of its own. The reader learns of the arrival from a counter that the same
stream copies after the data, into pinned memory: a plain read, so a reading thread never calls
CUDA, which it must not while another thread captures a graph. On the CPU both regions are one.

Reserving and sending belong to the thread that launches the host's work; everything else may be
called from one other thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

ALIGNMENT = 256

Shape = tuple[int, ...]
Spec = tuple[Any, Shape]
"""(torch dtype, shape) of a tensor."""


@dataclass
class Parcel:
    """A reserved region and where its tensors lie.

    Attributes:
        start: first byte of the region. nbytes: its length.
        places: name -> (byte offset from ``start``, dtype, shape).
        ticket: number of its transfer, once sent; 0 before.
    """

    start: int
    nbytes: int
    places: Mapping[str, tuple[int, Any, Shape]]
    ticket: int = 0
    released: bool = field(default=False, repr=False)


def bytes_of(specs: Mapping[str, Spec]) -> int:
    """Bytes of a region that holds these tensors, each aligned."""
    return sum(_aligned(_nbytes(spec)) for spec in specs.values())


def _nbytes(spec: Spec) -> int:
    dtype, shape = spec
    return int(prod(shape)) * int(dtype.itemsize)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class CaptureArena:
    """A ring of bytes. Allocates in the constructor only; construct it outside graph capture."""

    def __init__(self, nbytes: int, device: Any) -> None:
        """
        Raises:
            RuntimeError: the device or the host has no such memory.
        """
        if nbytes < ALIGNMENT:
            raise ValueError(f"an arena of {nbytes} bytes holds nothing")
        self.nbytes = nbytes // ALIGNMENT * ALIGNMENT
        device = torch.device(device)
        self._cuda = device.type == "cuda"
        self._host = torch.empty(self.nbytes, dtype=torch.uint8, pin_memory=self._cuda)
        self._staging = self._host
        self._sent = 0
        self._arrived = torch.zeros(1, dtype=torch.int64, pin_memory=self._cuda)
        # Shares the memory: the reading thread looks at it without any call into torch.
        self._arrived_numpy = self._arrived.numpy()
        self._taken: deque[Parcel] = deque()
        self._head = 0
        if self._cuda:
            self._staging = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
            self._stream = torch.cuda.Stream(self._staging.device)
            self._counter = torch.zeros(1, dtype=torch.int64, device=self._staging.device)
            self._filled = torch.cuda.Event()
            # CUDA creates an event when it is first recorded, and the counter is zeroed on the
            # current stream: have both behind us.
            self._stream.wait_stream(torch.cuda.current_stream(self._staging.device))
            self._filled.record(self._stream)

    def reserve(self, specs: Mapping[str, Spec]) -> Parcel | None:
        """A region for these tensors, or ``None`` when there is no room now."""
        nbytes = bytes_of(specs)
        start = self._room_for(nbytes)
        if start is None:
            return None
        places: dict[str, tuple[int, Any, Shape]] = {}
        at = 0
        for name, spec in specs.items():
            places[name] = (at, *spec)
            at += _aligned(_nbytes(spec))
        parcel = Parcel(start, nbytes, places)
        self._taken.append(parcel)
        self._head = start + nbytes
        return parcel

    def _room_for(self, nbytes: int) -> int | None:
        taken = self._taken
        while taken and taken[0].released:
            taken.popleft()
        if nbytes > self.nbytes or nbytes <= 0:
            return None
        if not taken:
            return 0
        tail = taken[0].start
        if self._head > tail:
            if self._head + nbytes <= self.nbytes:
                return self._head
            return 0 if nbytes <= tail else None
        return self._head if self._head + nbytes <= tail else None

    def on_device(self, parcel: Parcel, name: str) -> Any:
        """The named tensor of the parcel, to copy into. On the device."""
        return self._view(self._staging, parcel, name)

    def send(self, parcels: Sequence[Parcel]) -> bool:
        """Enqueue the transfer of what the current stream has put into these parcels.

        The current stream never waits. False, with nothing enqueued, while a graph is captured.
        """
        if not parcels:
            return True
        if self._cuda and torch.cuda.is_current_stream_capturing():
            return False
        ticket = self._sent + 1
        if self._cuda:
            self._filled.record(torch.cuda.current_stream(self._staging.device))
            self._stream.wait_event(self._filled)
            with torch.cuda.stream(self._stream):
                for parcel in parcels:
                    part = slice(parcel.start, parcel.start + parcel.nbytes)
                    self._host[part].copy_(self._staging[part], non_blocking=True)
                self._counter.add_(1)
                self._arrived.copy_(self._counter, non_blocking=True)
        else:
            self._arrived_numpy[0] = ticket
        self._sent = ticket
        for parcel in parcels:
            parcel.ticket = ticket
        return True

    def has_arrived(self, parcel: Parcel) -> bool:
        """Whether the parcel is in host memory. Any thread; no call into CUDA."""
        return 0 < parcel.ticket <= int(self._arrived_numpy[0])

    def on_host(self, parcel: Parcel) -> dict[str, Any]:
        """Copies of the tensors of a parcel that has arrived, by name. Any thread."""
        return {name: self._view(self._host, parcel, name).clone() for name in parcel.places}

    def release(self, parcel: Parcel) -> None:
        """Give the region back. Any thread; only after arrival, or for a parcel never sent."""
        parcel.released = True

    def _view(self, memory: Any, parcel: Parcel, name: str) -> Any:
        offset, dtype, shape = parcel.places[name]
        start = parcel.start + offset
        return memory[start : start + _nbytes((dtype, shape))].view(dtype).view(shape)
