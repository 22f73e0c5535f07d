"""The rig itself: SGLang with and without a draft, and transformers, emit the same tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.server import RigServer

NEW_TOKENS = 64
CHUNK = 64
PROMPT_LENGTHS = (1, 3, 7, 16, 40, 90, 130, 200)  # the last three need two to four chunks


@dataclasses.dataclass(frozen=True)
class Case:
    """Which models, and how they are served."""

    models: str
    mode: str

    def __str__(self) -> str:
        return f"{self.models}-{self.mode}"


@dataclasses.dataclass(frozen=True)
class Served:
    server: RigServer
    prompts: list[list[int]]
    expected: list[tuple[int, ...]]
    speculative: bool


def random_llama(place: Path) -> tuple[Path, Path]:
    from rig.models import write_eagle3_draft, write_llama

    target = write_llama(place / "llama")
    return target, write_eagle3_draft(place / "llama-draft", target)


def trained_deepseek(place: Path) -> tuple[Path, Path]:
    from fixtures import materialise

    name = "deepseek-draft-default"
    return materialise("deepseek", place / "trained"), materialise(name, place / name)


MODELS: dict[str, Callable[[Path], tuple[Path, Path]]] = {
    "random-llama": random_llama,
    "trained-deepseek": trained_deepseek,
}
CASES = [
    Case("trained-deepseek", "plain"),
    Case("trained-deepseek", "chain"),
    Case("trained-deepseek", "tree"),
    Case("random-llama", "tree"),
]
Reference = tuple[Path, Path, list[list[int]], list[tuple[int, ...]]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Models on disk, prompts, and transformers' tokens for them; made once per kind of model."""
    import torch
    from rig.reference import greedy_tokens
    from transformers import AutoConfig

    made: dict[str, Reference] = {}

    def get(name: str) -> Reference:
        if name not in made:
            target, draft = MODELS[name](tmp_path_factory.mktemp(name))
            vocab = AutoConfig.from_pretrained(target).vocab_size
            generator = torch.Generator().manual_seed(1)
            prompts = [
                torch.randint(2, vocab, (length,), generator=generator).tolist()
                for length in PROMPT_LENGTHS
            ]
            made[name] = target, draft, prompts, greedy_tokens(target, prompts, NEW_TOKENS)
        return made[name]

    return get


@pytest.fixture(scope="module", params=CASES, ids=str)
def served(
    request: pytest.FixtureRequest,
    reference: Callable[[str], Reference],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    case: Case = request.param
    target, draft, prompts, expected = reference(case.models)
    with RigServer(
        target,
        None if case.mode == "plain" else draft,
        topk=4 if case.mode == "tree" else 1,
        extra_args=["--chunked-prefill-size", str(CHUNK)],
        log_file=tmp_path_factory.mktemp("log") / "server.log",
    ) as server:
        yield Served(server, prompts, expected, case.mode != "plain")


def test_eight_requests_at_once_equal_transformers(served: Served) -> None:
    served.server.flush_cache()
    answers = served.server.generate(served.prompts, NEW_TOKENS, ignore_eos=True)
    assert [a.output_ids for a in answers] == served.expected
    assert all(a.cached_tokens == 0 for a in answers)


def test_prefix_cache_hits_change_nothing(served: Served) -> None:
    longest = served.prompts[-1]
    served.server.generate(longest, NEW_TOKENS, ignore_eos=True)
    [again] = served.server.generate(longest, NEW_TOKENS, ignore_eos=True)
    assert again.cached_tokens > len(longest) - 4
    assert again.output_ids == served.expected[-1]


def test_one_request_alone_equals_the_batch(served: Served) -> None:
    served.server.flush_cache()
    for prompt, tokens in zip(served.prompts, served.expected, strict=True):
        [answer] = served.server.generate(prompt, NEW_TOKENS, ignore_eos=True)
        assert answer.output_ids == tokens


def test_drafts_are_accepted_and_rejected(served: Served) -> None:
    if not served.speculative:
        pytest.skip("no draft here")
    answers = served.server.generate(served.prompts, NEW_TOKENS, ignore_eos=True)
    lengths = [a.accept_length for a in answers]
    assert max(lengths) > 1.2
    assert min(lengths) < 1 + served.server.steps
