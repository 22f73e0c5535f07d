"""The flags on SGLang's parser: they set variables, and say what is wrong with a value."""

from __future__ import annotations

import argparse

import pytest

from sglang_eagle3_probe.host.command_line import add_flags
from sglang_eagle3_probe.settings import PREFIX, Settings


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    for name in ("", "_DIR", "_LEVEL", "_ALL_LAYERS"):
        # Set first, so that what the flags set is taken back after the test.
        monkeypatch.setenv(PREFIX + name, "x")
        monkeypatch.delenv(PREFIX + name)
    made = argparse.ArgumentParser()
    add_flags(made)
    return made


def test_all_layers_means_level_capture(parser: argparse.ArgumentParser) -> None:
    parser.parse_args(["--enable-probe", "--probe-all-layers", "3"])
    settings = Settings.from_environment()
    assert (settings.enabled, settings.level, settings.all_layers) == (True, "capture", 3)


def test_without_the_flag_the_level_stays(parser: argparse.ArgumentParser) -> None:
    parser.parse_args(["--enable-probe"])
    assert Settings.from_environment() == Settings(enabled=True)


def test_no_requests_at_all_is_refused(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--probe-all-layers", "0"])
    assert "not at least 1" in capsys.readouterr().err


def test_flags_are_added_once(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)
    assert parser.format_help().count("--probe-all-layers") == 2  # in the usage and in the list
