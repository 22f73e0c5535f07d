"""A capture of this probe in place of a trainer's file: another server, precision or rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sglang_eagle3_probe.offline.captured import CapturedRequest, capture_files, read_requests
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, States

NAME = "capture of this probe"


def is_capture(source: Path) -> bool:
    """Whether a path names a capture file, or a folder of them."""
    if source.is_file():
        return source.name.startswith("capture-") and source.suffix == ".safetensors"
    return source.is_dir() and any(
        next(folder.glob("capture-*.safetensors"), None) is not None
        for folder in (source, source / "captures")
    )


def read(source: Path) -> Iterator[Sample]:
    """Each request; positions without states end it, since rows and ids must go together."""
    capture_files(source)
    for request in read_requests(source):
        yield _sample(request)


def _sample(request: CapturedRequest) -> Sample:
    known = request.aux_known
    start = int(known.nonzero()[0]) if bool(known.any()) else 0
    gaps = (~known[start:]).nonzero()
    stop = start + (int(gaps[0]) if len(gaps) else len(known) - start)
    slots = len(request.info.boundaries)
    return Sample(
        name=f"request {request.info.request}",
        producer=NAME,
        why=f"written by SGLang {request.info.sglang or '(unknown)'} with the probe",
        token_ids=request.token_ids[start:stop],
        rows=stop - start,
        slot_count=slots,
        states=lambda: States(
            request.aux[start:stop].reshape(stop - start, slots, -1),
            request.final_norm[start:stop] if request.final_norm is not None else None,
        ),
        claimed=tuple(request.info.boundaries),
        last_form="post-norm",
    )
