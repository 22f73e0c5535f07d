"""Server arguments as a person would type them, by SGLang's own names."""

from __future__ import annotations

import re
import shlex
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import MAX_INT, CheckpointError

ALIASES = {
    "model": "model_path",
    "speculative_draft_model": "speculative_draft_model_path",
    "tensor_parallel_size": "tp_size",
    "tp": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "pp": "pp_size",
    "data_parallel_size": "dp_size",
    "dp": "dp_size",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "attention_data_parallel_size": "attn_dp_size",
    "speculative_algo": "speculative_algorithm",
}
"""Other spellings that SGLang takes -> the field they fill."""
TEXTS = frozenset({"model_path", "speculative_draft_model_path", "json_model_override_args"})
"""Always text, whatever they look like."""
LIMIT = 100_000
DECIMAL = re.compile(r"[+-]?([0-9]{1,12}\.?[0-9]{0,12}|\.[0-9]{1,12})([eE][+-]?[0-9]{1,2})?")
FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*$")


def parse_arguments(text: str) -> dict[str, Any]:
    """``--speculative-num-steps 3 --enable-x`` -> names with underscores and values.

    A flag without a value is true; several values make a list; the last of repeated flags counts.
    """
    if len(text) > LIMIT:
        raise CheckpointError(f"--args has {len(text)} characters, expected at most {LIMIT}.")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CheckpointError(
            f"--args cannot be split into words: {str(error).lower()}. Fix: quote it as a shell "
            "would need it."
        ) from None
    while words and not words[0].startswith("-"):  # "sglang serve MODEL", "python -m ..." before
        words.pop(0)
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        flag, equals, value = word.partition("=")
        if FLAG.match(flag):
            name = flag[2:].replace("-", "_")
            name = ALIASES.get(name, name)
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
        elif word == "-m":
            name = "_module"
            found[name] = []
    found.pop("_module", None)
    return {key: _value(key, values) for key, values in found.items()}


def _value(name: str, values: list[str]) -> Any:
    if not values:
        return True
    if name in TEXTS:
        return " ".join(values)
    parsed = [_word(word) for word in values]
    return parsed[0] if len(parsed) == 1 else parsed


def _word(word: str) -> Any:
    if re.fullmatch(r"[+-]?[0-9]{1,13}", word):
        number = int(word)
        return number if abs(number) <= MAX_INT else word
    return float(word) if DECIMAL.fullmatch(word) and set(word) & set(".eE") else word
