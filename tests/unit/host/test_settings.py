from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sglang_eagle3_probe.settings import (
    PREFIX,
    Settings,
    SettingsError,
    is_enabled,
    variables,
)

ROOT = Path(__file__).parents[3]


def read(**values: str) -> Settings:
    return Settings.from_environment({f"{PREFIX}_{k.upper()}": v for k, v in values.items()})


def test_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert settings.level == "wiring"
    assert not settings.enabled


def test_every_variable_reads_its_own_text_back() -> None:
    settings = Settings(
        enabled=True,
        layer_ids=(-1, 2, 30),
        layer_ids_unit="boundary",
        patches=(),
        full_vocab_map=True,
        trained_layer_ids=(1, 2),
    )
    text = {k: v or "none" for k, v in settings.as_text().items() if v or k.endswith("PATCHES")}
    assert Settings.from_environment(text) == settings


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("layer_ids", "1,x", "separated by commas"),
        ("layer_ids", "1,,2", "separated by commas"),
        ("layer_ids_unit", "layers", "auto, output_id, boundary"),
        ("level", "all", "wiring, stats, capture"),
        ("patches", "embedding", "embedding_capture, capture_order"),
        ("queue_records", "0", "at least 1"),
        ("file_mb", "-3", "at least 1"),
        ("capture_first", "-1", "at least 0"),
        ("all_layers", "2", "needs level capture"),
        ("full_vocab_map", "maybe", "1 or 0"),
        ("colour", "red", "is not a variable"),
    ],
)
def test_bad_values_are_named_with_a_fix(name: str, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(**{name: text})
    message = str(caught.value)
    assert f"{PREFIX}_{name.upper()}" in message
    assert text in message
    assert says in message
    assert "Fix:" in message


def test_brackets_and_spaces_are_forgiven() -> None:
    assert read(layer_ids="[-1, 2, 30]").layer_ids == (-1, 2, 30)
    assert read(patches=" capture_order , embedding_capture ").patches == (
        "capture_order",
        "embedding_capture",
    )


def test_enabled_asks_nothing_else() -> None:
    assert not is_enabled({f"{PREFIX}_LEVEL": "nonsense"})
    assert is_enabled({PREFIX: "yes", f"{PREFIX}_LEVEL": "nonsense"})
    assert not is_enabled({PREFIX: "0"})


def test_the_documented_page_is_up_to_date() -> None:
    page = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "configuration"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert page.returncode == 0, page.stdout + page.stderr


def test_every_variable_has_words() -> None:
    for variable in variables():
        assert variable.name.startswith(PREFIX)
        assert variable.meaning.endswith(".")
