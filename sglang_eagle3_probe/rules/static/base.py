"""What a static rule is, and the few questions all of them ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import release as release_numbers
from sglang_eagle3_probe.rules.base import Finding, Page, Result, Seen, Severity, Unknown

LLAMA = "LlamaForCausalLMEagle3"
"""``models/llama_eagle3.py``, in every release read (0.5.9 to 0.5.23)."""
MLA = "Eagle3DeepseekV2ForCausalLM"
"""``models/kimi_k25_eagle3.py``, from 0.5.12."""
ALIASES = frozenset({
    "Eagle3LlamaForCausalLM", "LlamaEagle3DraftModel", "Eagle3Speculator", "Eagle3DraftModel",
})  # fmt: skip
"""Names that trainers (AngelSlim, NeMo, speculators) give to drafts of the Llama class's layout."""
NESTED = "eagle_config.eagle_aux_hidden_state_layer_ids"
TOP = "eagle_aux_hidden_state_layer_ids"

REPLAY = (
    "serve some requests with `--enable-probe` and SGLANG_EAGLE3_PROBE_LEVEL=capture; "
    "`sglang-eagle3-probe replay probe-logs --draft DRAFT --target TARGET` then runs the draft "
    "both ways"
)
"""What decides how a draft's forward was meant, when its files do not."""


@dataclass(frozen=True)
class StaticRule:
    """One check with a stable code, decided before anything is loaded."""

    code: str
    title: str
    page: Page
    check: Callable[[Situation], list[Result]]

    def finding(
        self, severity: Severity, message: str, evidence: Sequence[Seen], fix: str
    ) -> Finding:
        found = tuple(evidence)
        return Finding(self.code, severity, self.title, message, found, fix, source="files")

    def unknown(self, message: str, decide: str) -> Unknown:
        return Unknown(self.code, self.title, message, decide, source="files")


def since(situation: Situation, release: str) -> bool:
    """Whether the release judged is this one or later; an unreadable one counts as newest."""
    try:
        return release_numbers(situation.release) >= release_numbers(release)
    except ValueError:
        return True


def key(situation: Situation, name: str) -> str:
    """Where a key of the draft's config stands, for evidence."""
    return f"draft {situation.draft.config_file}: {name}"


def target_key(situation: Situation, name: str) -> str:
    return f"target {situation.target.config_file}: {name}"


def seen_key(situation: Situation, name: str) -> Seen:
    """A key of the draft's config with its value."""
    return Seen(name, situation.draft.config.get(name), key(situation, name))


def tensor_names(situation: Situation) -> tuple[str, ...]:
    """Names in the draft's checkpoint; empty when there is none to look at."""
    return tuple(situation.draft.tensors or ())


def names_with(situation: Situation, *parts: str) -> list[str]:
    """Tensor names that hold any of these parts, sorted."""
    return sorted(n for n in tensor_names(situation) if any(part in n for part in parts))


def some(names: Iterable[str], most: int = 6) -> str:
    """A list short enough for a sentence."""
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def plain_llama(situation: Situation) -> bool:
    """An EAGLE-3 draft that calls itself an ordinary Llama, as EAGLE's own training does."""
    return situation.draft_class == "LlamaForCausalLM" and (
        "draft_vocab_size" in situation.draft.config
        or bool(names_with(situation, "d2t", "midlayer", "fc."))
    )


def served_class(situation: Situation) -> str | None:
    """The class that serves the draft, once a name that only wants changing (E3P213) is changed."""
    if situation.draft_class in ALIASES or plain_llama(situation):
        return LLAMA
    return situation.draft_class


def is_mla(situation: Situation) -> bool:
    return situation.draft_class == MLA


def known_class(situation: Situation) -> bool:
    """Whether the draft is served by a class whose source these rules were checked against."""
    return served_class(situation) in {LLAMA, MLA}


def reduced(situation: Situation) -> bool:
    """Whether the draft's head has fewer rows than the target has tokens."""
    draft, target = situation.draft_vocab, situation.target_vocab
    return draft is not None and target is not None and draft < target


def eagle3_signs(situation: Situation) -> list[Seen]:
    """What says that the draft is EAGLE-3."""
    signs: list[Seen] = []
    name = situation.draft_class or ""
    if "eagle3" in name.lower():
        signs.append(Seen("draft architecture", name, key(situation, "architectures")))
    if names_with(situation, "d2t"):
        signs.append(Seen("tensor", "d2t", "draft checkpoint"))
    fc, hidden = situation.fc_in, situation.hidden or situation.draft_hidden
    if fc is not None and hidden is not None and fc >= 3 * hidden:
        signs.append(Seen("fc input width", fc, "draft checkpoint: fc.weight"))
    return signs


def whole(situation: Situation, name: str) -> int | None:
    """A server argument as a whole number; None when absent or something else."""
    value = situation.argument(name)
    if isinstance(value, str) and value.strip().lstrip("-").isdigit() and len(value) < 12:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def eagle3_served(situation: Situation) -> bool:
    """Whether the algorithm given is EAGLE3; without arguments that is what will be given."""
    return situation.algorithm in {None, "EAGLE3"}
