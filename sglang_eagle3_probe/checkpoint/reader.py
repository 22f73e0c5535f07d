"""A checkpoint's config and headers: from a folder, a config file, or the Hugging Face cache."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import (
    CheckpointError,
    CheckpointFacts,
    TensorInfo,
    int_list,
)
from sglang_eagle3_probe.checkpoint.files import (
    CONFIG_LIMIT,
    INDEX_LIMIT,
    inside,
    read_object,
    shown,
    trouble,
)
from sglang_eagle3_probe.checkpoint.safetensors_file import (
    Entry,
    check_start,
    read_header,
    read_integers,
    where_set,
)
from sglang_eagle3_probe.settings import hub_cache

CONFIG = "config.json"
TRAINER_NOTES = "trainer_accuracy.json"
QUANTIZATION = "hf_quant_config.json"
INDEX = "model.safetensors.index.json"
SHARD = ".safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_SHARDS = 10_000
MAX_TENSORS = 5_000_000


def read_checkpoint(given: str, *, headers: bool = True) -> CheckpointFacts:
    """Everything a rule may know of a checkpoint.

    Args:
        given: a folder, a config file, or a name in the Hugging Face cache.
        headers: False leaves the headers unread, whose time grows with the number of tensors:
            files and their beginnings are looked at, and ``tensors`` is None. Enough for a target,
            of whose weights no rule asks anything.

    Raises:
        CheckpointError: it cannot be read; one line.
    """
    place = located(given)
    if place.is_dir():
        return _from_folder(given, place, headers)
    config = read_object(place, CONFIG_LIMIT)
    if "weight_map" in config:
        raise CheckpointError(
            f"{shown(place)} is an index of weights, expected a config. Fix: give the folder."
        )
    note = f"{place.name} was given, not a folder: weights were not looked into"
    return CheckpointFacts(
        given, _not_empty(config, place), None, notes=(note,), config_file=place.name
    )


def _not_empty(config: dict[str, Any], place: Path) -> dict[str, Any]:
    if not config:
        raise CheckpointError(f"{shown(place)} holds an empty object, expected a model's config.")
    return config


# -- where --------------------------------------------------------------------------------------


def located(given: str) -> Path:
    """The folder or config file that a name given by the user means."""
    try:
        place = Path(given).expanduser()
        if not os.path.lexists(place):
            cached = _in_hub_cache(given)
            if cached is None:
                raise CheckpointError(
                    f"{shown(given)} does not exist, here or in the local Hugging Face cache "
                    "(nothing is ever downloaded). Fix: give a folder, a config.json, or a model "
                    "that was downloaded before."
                )
            place = cached
        os.stat(place)
        if place.is_dir():
            return _snapshot(place) or place
        if place.suffix == SHARD:
            raise CheckpointError(
                f"{shown(given)} is a weights file. Fix: give the folder that holds it."
            )
        if place.suffix in PICKLES:
            raise CheckpointError(
                f"{shown(given)} is a pickle file, which is never loaded, as it can run code. "
                "Fix: give a folder with config.json and safetensors."
            )
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, RuntimeError):
            raise CheckpointError(f"{shown(given)} has no home folder to start from.") from None
        raise trouble(given, error) from None
    return place


def _in_hub_cache(given: str) -> Path | None:
    """The folder of ``organisation/model`` in the local cache."""
    parts = given.split("/")
    if len(parts) != 2 or not all(part and part.strip(".") for part in parts):
        return None
    cache = hub_cache()
    found = cache / f"models--{parts[0]}--{parts[1]}"
    return found if found.is_dir() else None


def _snapshot(folder: Path) -> Path | None:
    """The snapshot in force when the folder is a whole cache entry."""
    snapshots = folder / "snapshots"
    if (folder / CONFIG).exists() or not snapshots.is_dir():
        return None
    main = folder / "refs" / "main"
    if main.is_file() and main.stat().st_size < 200:
        named = snapshots / main.read_text(encoding="utf-8", errors="replace").strip()
        if named.parent == snapshots and named.is_dir():
            return named
    present = sorted(entry for entry in snapshots.iterdir() if entry.is_dir())
    if len(present) == 1:
        return present[0]
    raise CheckpointError(
        f"{shown(folder)} is a Hugging Face cache entry with {len(present)} snapshots and no "
        "usable refs/main. Fix: give one of the folders in snapshots/."
    )


# -- a folder -----------------------------------------------------------------------------------


def _from_folder(given: str, folder: Path, headers: bool) -> CheckpointFacts:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise trouble(given, error) from None
    if CONFIG not in names:
        raise CheckpointError(
            f"{shown(given)} has no {CONFIG}. Fix: give the folder that holds the model's "
            f"{CONFIG}, or the file itself."
        )
    place = inside(folder, folder / CONFIG)
    config = _not_empty(read_object(place, CONFIG_LIMIT), folder / CONFIG)
    notes: list[str] = []
    pickles = [name for name in names if name.endswith(PICKLES)]
    if pickles:
        notes.append(
            f"{_few(pickles)}: pickle files are never loaded, as they can run code; what is in "
            "them is unknown"
        )
    trained, theta = _trained(folder, names, notes)
    bare = CheckpointFacts(
        given,
        config,
        None,
        trained_output_ids=trained,
        trained_rope_theta=theta,
        quantization_file=_beside(folder, names, QUANTIZATION, notes) or None,
    )
    shards, listed = _shards(folder, names, notes)
    if not shards:
        notes.append("no safetensors file: names, shapes and vocabulary maps are unknown")
        return replace(bare, notes=tuple(notes))
    if not headers:
        if listed is None:
            count = len(_headers(folder, shards, notes))
        else:
            count = len(listed)
            for name in shards:
                check_start(inside(folder, folder / name))
        return replace(bare, notes=tuple(notes), tensor_count=count)
    entries = _headers(folder, shards, notes)
    _compare(listed, entries, notes)
    d2t = _values(folder, entries, "d2t", notes)
    t2d = _values(folder, entries, "t2d", notes)
    tensors: dict[str, TensorInfo] = {name: entry.info for name, entry in entries.items()}
    return replace(
        bare,
        tensors=tensors,
        d2t=tuple(d2t) if d2t is not None else None,
        t2d_kept=where_set(t2d) if t2d is not None else None,
        t2d_size=len(t2d) if t2d is not None else None,
        notes=tuple(notes),
    )


def _trained(
    folder: Path, names: list[str], notes: list[str]
) -> tuple[tuple[int, ...] | None, float | None]:
    """The trainer's word on layers and theta."""
    content = _beside(folder, names, TRAINER_NOTES, notes)
    ids = int_list(content.get("trained_on_output_ids")) or None
    theta = content.get("trained_rope_theta")
    if isinstance(theta, bool) or not isinstance(theta, (int, float)) or not 0 < theta < 1e30:
        return ids, None
    return ids, float(theta)


def _beside(folder: Path, names: list[str], name: str, notes: list[str]) -> dict[str, Any]:
    """A JSON file beside the config; empty without one. A broken one is no reason to stop."""
    if name not in names:
        return {}
    try:
        return read_object(inside(folder, folder / name), CONFIG_LIMIT)
    except CheckpointError as error:
        notes.append(f"{name} was passed over: {error}")
        return {}


def _shards(
    folder: Path, names: list[str], notes: list[str]
) -> tuple[list[str], dict[str, str] | None]:
    present = [name for name in names if name.endswith(SHARD)]
    if INDEX not in names:
        return present, None
    place = inside(folder, folder / INDEX)
    listed = read_object(place, INDEX_LIMIT).get("weight_map")
    if not isinstance(listed, dict):
        raise CheckpointError(
            f"{shown(folder / INDEX)} has no weight_map, expected tensor names with their files. "
            "Fix: download or export it again."
        )
    shards = sorted(
        {shard_name(folder, file) for file in dict.fromkeys(map(_hashable, listed.values()))}
    )
    if len(shards) > MAX_SHARDS:
        raise CheckpointError(
            f"{shown(folder / INDEX)} names {len(shards)} files, expected at most {MAX_SHARDS}."
        )
    missing = [name for name in shards if not os.path.lexists(folder / name)]
    if missing:
        raise CheckpointError(
            f"{shown(folder / INDEX)} names {len(shards)} files, of which {len(missing)} are not "
            f"there ({_few(missing)}). Fix: finish the download, or give the config.json itself "
            "to judge without weights."
        )
    unlisted = [name for name in present if name not in shards]
    if unlisted:
        notes.append(f"{_few(unlisted)}: not in {INDEX}, so neither SGLang nor this reads them")
    return shards, listed


def _hashable(file: object) -> object:
    """A large index names few files, so each is looked at once; nonsense is left to the look."""
    return file if isinstance(file, str) else repr(file)


def shard_name(folder: Path, file: object) -> str:
    """A file's name as an index has it, once it is seen to be a plain one."""
    plain = (
        isinstance(file, str)
        and file.endswith(SHARD)
        and len(file) < 256
        and file.isprintable()
        and not file.startswith(("/", "~"))
        and "\\" not in file
        and ".." not in file.split("/")
    )
    if not plain:
        raise CheckpointError(
            f"{shown(folder / INDEX)} names {shown(repr(file))} as a file, expected the name of a "
            f"{SHARD} file in the same folder. Fix: download or export it again."
        )
    return str(file)


def _headers(folder: Path, shards: list[str], notes: list[str]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    twice: list[str] = []
    seen = 0
    for name in shards:
        found = read_header(inside(folder, folder / name), name)
        seen += len(found)
        if seen > MAX_TENSORS:
            raise CheckpointError(
                f"{shown(folder)} names more than {MAX_TENSORS} tensors; no model has that many. "
                "Fix: give the config.json itself to judge without weights."
            )
        twice += [tensor for tensor in found if tensor in entries]
        entries.update(found)
    if twice:
        notes.append(f"{_few(twice)}: in more than one file; the last one is described")
    return entries


def _compare(listed: dict[str, str] | None, entries: dict[str, Entry], notes: list[str]) -> None:
    lost = [name for name in listed or () if name not in entries]
    if lost:
        notes.append(f"{_few(lost)}: named in {INDEX}, but in no file")


def _values(folder: Path, entries: dict[str, Entry], name: str, notes: list[str]) -> Any:
    found = next((full for full in (name, f"model.{name}") if full in entries), None)
    if found is None:
        return None
    entry = entries[found]
    values = read_integers(inside(folder, folder / entry.info.file), entry)
    if isinstance(values, str):
        notes.append(f"{found}: values not read, as {values}")
        return None
    return values


def _few(names: list[str]) -> str:
    shown_names = ", ".join(shown(name) for name in names[:3])
    return f"{shown_names} and {len(names) - 3} more" if len(names) > 3 else shown_names
