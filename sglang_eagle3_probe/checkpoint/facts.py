"""What is known of a target and a draft before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sglang_eagle3_probe.checkpoint.live import LiveFacts

TEXT_CONFIG_KEYS = ("text_config", "language_config", "llm_config")
"""Where a multimodal config keeps its language model; ``thinker_config`` is looked into first."""
LAYER_CONFIG = "transformer_layer_config"
"""Where speculators keeps the draft layer's own config."""
MAX_INT = 1 << 40
"""Larger numbers in a config are nonsense and count as absent."""


class CheckpointError(Exception):
    """A checkpoint cannot be read: one line that says what, what was expected, what to do."""


class TensorInfo(NamedTuple):
    """One tensor as its file's header describes it. Made by the hundred thousand, so a tuple."""

    dtype: str
    """As safetensors writes it: BF16, F32, I64, BOOL, F8_E4M3, ..."""
    shape: tuple[int, ...]
    file: str
    """Name of the file it lies in, relative to the checkpoint."""


@dataclass(frozen=True)
class EmbeddingRows:
    """Rows of a draft's own embedding against the same rows of the target's."""

    compared: int
    differ: int


@dataclass(frozen=True)
class CheckpointFacts:
    """A config and, if there are weights, the names and shapes in their headers."""

    path: str
    """As given."""
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo] | None
    """None: only a config was given, or the weights could not be looked into (see notes)."""
    d2t: tuple[int, ...] | None = None
    t2d_kept: tuple[int, ...] | None = None
    """Indices at which ``t2d`` is set, ascending."""
    t2d_size: int | None = None
    notes: tuple[str, ...] = ()
    """What was not read and why."""
    trained_output_ids: tuple[int, ...] | None = None
    """``trained_on_output_ids`` of the trainer's notes beside the weights, in training order."""
    config_file: str = "config.json"
    """Name to use when a finding points into the config."""
    trained_rope_theta: float | None = None
    """``trained_rope_theta`` of the same notes."""
    before_overrides: Mapping[str, Any] | None = None
    """The config as its file has it, where a server argument changed it."""
    tensor_count: int | None = None
    """Tensors that the index names, where no header was read."""
    quantization_file: Mapping[str, Any] | None = None
    """What ``hf_quant_config.json`` says; SGLang reads it where the config has no block."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", flattened(self.config))

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's own config; the whole config for text-only models."""
        outer = self.config
        thinker = outer.get("thinker_config")
        if isinstance(thinker, Mapping):
            outer = thinker
        for key in TEXT_CONFIG_KEYS:
            inner = outer.get(key)
            if isinstance(inner, Mapping) and inner:
                return inner
        return outer

    @property
    def architecture(self) -> str | None:
        """``architectures[0]``."""
        names = self.config.get("architectures")
        if isinstance(names, Sequence) and not isinstance(names, str) and names:
            return names[0] if isinstance(names[0], str) else None
        return None

    @property
    def model_type(self) -> str | None:
        found = self.config.get("model_type")
        return found if isinstance(found, str) else None

    @property
    def weights(self) -> int | None:
        """How many tensors the checkpoint has; None when only a config was given."""
        return self.tensor_count if self.tensors is None else len(self.tensors)

    @property
    def quantization(self) -> Mapping[str, Any] | None:
        """The quantisation that SGLang finds: two keys of the config, then ModelOpt's own file.

        ``_parse_quant_hf_config`` in ``configs/model_config.py`` (read in 0.5.23).
        """
        for name in ("quantization_config", "compression_config"):
            found = self.config.get(name)
            if found is not None:
                return found if isinstance(found, Mapping) and found else None
        return self.quantization_file

    def text(self, key: str) -> Any:
        """A key of the language model's config, falling back to the outer one."""
        inner = self.text_config
        return inner[key] if key in inner else self.config.get(key)

    def integer(self, key: str) -> int | None:
        """The same as a plausible whole number, else None."""
        return plausible(self.text(key))

    def tensor(self, *names: str) -> TensorInfo | None:
        """The first of these tensors that exists, with or without a ``model.`` prefix."""
        if self.tensors is None:
            return None
        for name in names:
            for full in (name, f"model.{name}"):
                if full in self.tensors:
                    return self.tensors[full]
        return None


def flattened(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A speculators config as it must be written for SGLang: the layer's keys at the top level.

    speculators (0.1 to 0.9) keeps sizes, heads, rope and norms in ``transformer_layer_config``.
    Keys that stand at the top level already win, unless they are null.
    """
    inner = config.get(LAYER_CONFIG)
    if not isinstance(inner, Mapping):
        return config
    own = {key: value for key, value in config.items() if value is not None or key not in inner}
    return {**inner, **own}


def plausible(value: Any) -> int | None:
    """A whole number of believable size, else None; ``true`` is no number."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= MAX_INT else None


def number(value: Any) -> float | None:
    """A finite number of any kind, else None; ``true`` is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e30 else None


def block(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested block of a config; empty when it is none."""
    found = mapping.get(name)
    return found if isinstance(found, Mapping) else {}


def int_list(value: Any) -> tuple[int, ...] | None:
    """A list of whole numbers, else None."""
    if not isinstance(value, (list, tuple)):
        return None
    found = [plausible(entry) for entry in value]
    return None if None in found else tuple(n for n in found if n is not None)


@dataclass(frozen=True)
class Situation:
    """A draft to be served with a target by one release of SGLang."""

    target: CheckpointFacts
    draft: CheckpointFacts
    release: str
    """SGLang release judged, such as ``0.5.23``."""
    arguments: Mapping[str, Any]
    """Server arguments, by SGLang's names with underscores; absent: not given. As given, or with
    ``live`` those in force."""
    token_counts: Mapping[int, int] | None = None
    """How often each target token occurs in a file given for the coverage check."""
    asked: Mapping[str, Any] | None = None
    """Arguments as given where ``arguments`` are those in force; None: the same, or not known."""
    live: LiveFacts | None = None
    """What the running server shows; None: nothing runs yet."""
    embedding_rows: EmbeddingRows | None = None
    """The draft's own embedding against the target's; None: not compared."""
    source_patched: bool = False
    """SGLang's own files hold the probe's source diffs (``patch-source``)."""

    # -- target --

    @property
    def num_layers(self) -> int | None:
        """Layers of the target's language model."""
        found = self.target.integer("num_hidden_layers")
        if found is None:
            found = self.target.integer("num_layers")
        return found if found is not None and found > 0 else None

    @property
    def hidden(self) -> int | None:
        """Hidden size of the target."""
        return self.target.integer("hidden_size")

    @property
    def target_class(self) -> str | None:
        return self.target.architecture

    @property
    def target_vocab(self) -> int | None:
        return self.target.integer("vocab_size")

    # -- draft --

    @property
    def draft_class(self) -> str | None:
        return self.draft.architecture

    @property
    def draft_hidden(self) -> int | None:
        return self.draft.integer("hidden_size")

    @property
    def draft_vocab(self) -> int | None:
        """Rows of the draft's head by its config; the whole vocabulary without the key."""
        found = self.draft.integer("draft_vocab_size")
        return found if found is not None else self.draft.integer("vocab_size")

    @property
    def draft_config_vocab(self) -> int | None:
        """``vocab_size`` of the draft's config: the embedding's rows."""
        return self.draft.integer("vocab_size")

    @property
    def eagle_config(self) -> Mapping[str, Any] | None:
        """The nested block, if it is one."""
        found = self.draft.config.get("eagle_config")
        return found if isinstance(found, Mapping) else None

    @property
    def nested_ids(self) -> tuple[int, ...] | None:
        """The only list of layer ids that SGLang reads."""
        block = self.eagle_config
        return int_list(block.get("eagle_aux_hidden_state_layer_ids")) if block else None

    @property
    def top_level_ids(self) -> tuple[int, ...] | None:
        """The list where vLLM and speculators put it."""
        return int_list(self.draft.config.get("eagle_aux_hidden_state_layer_ids"))

    @property
    def uses_aux(self) -> bool:
        """Whether the draft gets aux hidden states (``use_aux_hidden_state``, default true)."""
        block = self.eagle_config
        return block is None or bool(block.get("use_aux_hidden_state", True))

    @property
    def fc_in(self) -> int | None:
        """Input width of ``fc`` by its stored weight."""
        found = self.draft.tensor("fc.weight")
        return found.shape[1] if found is not None and len(found.shape) == 2 else None

    @property
    def fc_out(self) -> int | None:
        found = self.draft.tensor("fc.weight")
        return found.shape[0] if found is not None and len(found.shape) == 2 else None

    @property
    def head_rows(self) -> int | None:
        """Rows of the draft's stored head."""
        found = self.draft.tensor("lm_head.weight")
        return found.shape[0] if found is not None and len(found.shape) == 2 else None

    # -- server --

    def argument(self, name: str, default: Any = None) -> Any:
        """A server argument by SGLang's name with underscores."""
        return self.arguments.get(name, default)

    @property
    def algorithm(self) -> str | None:
        """``speculative_algorithm`` in capitals; None when no arguments name one."""
        found = self.arguments.get("speculative_algorithm")
        return found.upper() if isinstance(found, str) else None
