"""Published accept lengths to hold one's own against, each with its setting and its source.

A length is comparable only under the same steps, topk and draft tokens: a chain of three steps
cannot exceed 4, so 2.7 there and 6.1 of a deep tree are not rivals. Lookups therefore never cross
settings, and every length comes with its share of the setting's ceiling (steps + 1). Numbers whose
setting was not published are not in the bank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

FILE = "reference_bank.json"


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accept lengths of one draft under one setting."""

    draft: str
    engine: str
    setting: str
    """``steps/topk/draft tokens``."""
    source: str
    """Key of ``sources``."""
    accept_lengths: dict[str, float]
    """Benchmark -> accept length, bonus token included."""
    batch_size: int | None = None
    temperature: float | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target model."""

    name: str
    pattern: str
    """Beginning of the model's name, in lower case with ``-`` between words."""
    architectures: list[str]
    """SGLang model classes of this family."""
    published: list[Published]


class Bank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The packaged file."""

    sources: dict[str, str]
    """Key -> URL."""
    targets: list[Target]


@dataclass(frozen=True)
class Reference:
    """One published accept length under the setting that was looked up."""

    target: str
    draft: str
    engine: str
    benchmark: str
    batch_size: int | None
    temperature: float | None
    accept_length: float
    ceiling: int
    source: str
    """URL."""

    @property
    def of_ceiling(self) -> float:
        return self.accept_length / self.ceiling


@dataclass(frozen=True)
class Found:
    """References under one setting, ascending by accept length; never empty."""

    setting: str
    how: Literal["name", "architecture"]
    """``name``: of this target. ``architecture``: of other models of the same class, which says
    less."""
    references: tuple[Reference, ...]

    @property
    def least(self) -> Reference:
        return self.references[0]

    @property
    def greatest(self) -> Reference:
        return self.references[-1]


@cache
def bank() -> Bank:
    """The packaged bank."""
    data = resources.files(__package__).joinpath(FILE).read_bytes()
    return msgspec.json.decode(data, type=Bank)


def look_up(
    target_path: str, target_architecture: str, *, steps: int, topk: int, draft_tokens: int
) -> Found | None:
    """What was published for this target under exactly this setting; ``None`` if nothing was.

    The target is recognised by the name at the end of its path, else by its model class.
    """
    setting = f"{steps}/{topk}/{draft_tokens}"
    named = _by_name(target_path)
    if named is not None:
        # A known target without this setting is not to be answered with its relatives.
        found = _references([named], setting, steps)
        return Found(setting, "name", found) if found else None
    related = [t for t in bank().targets if target_architecture in t.architectures]
    found = _references(related, setting, steps)
    return Found(setting, "architecture", found) if found else None


def _by_name(path: str) -> Target | None:
    # Caches name the folder models--org--name/snapshots/<digest>, so every part is tried.
    for part in reversed(re.split(r"[/\\]|--", path.lower())):
        name = re.sub(r"[^a-z0-9.]+", "-", part)
        for target in sorted(bank().targets, key=lambda t: -len(t.pattern)):
            if re.search(rf"(^|-){re.escape(target.pattern)}($|-)", name):
                return target
    return None


def _references(targets: list[Target], setting: str, steps: int) -> tuple[Reference, ...]:
    found = [
        Reference(
            target=target.name,
            draft=published.draft,
            engine=published.engine,
            benchmark=benchmark,
            batch_size=published.batch_size,
            temperature=published.temperature,
            accept_length=length,
            ceiling=steps + 1,
            source=bank().sources[published.source],
        )
        for target in targets
        for published in target.published
        if published.setting == setting
        for benchmark, length in published.accept_lengths.items()
    ]
    return tuple(sorted(found, key=lambda r: (r.accept_length, r.target, r.draft, r.benchmark)))
