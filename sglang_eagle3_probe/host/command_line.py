"""``--enable-probe``, ``--probe-dir`` and ``--probe-all-layers`` on SGLang's own command line.

The flags act when they are parsed, by setting our variables, so nothing is ever put on the
ServerArgs record (0.5.17 and 0.5.18 refuse foreign attributes, later ones drop or freeze them)
and every process that SGLang spawns afterwards inherits the decision.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from .. import settings
from .call import Call
from .wrapping import Proceed


class CommandLineHandler:
    """Around ``ServerArgs.add_cli_args``: adds our flags after SGLang's own."""

    name = "command_line"

    def run(self, proceed: Proceed, call: Call) -> Any:
        result = proceed(call)
        parser = call.get("parser")
        if isinstance(parser, argparse.ArgumentParser):
            add_flags(parser)
        return result


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the probe's flags unless the parser has them already."""
    # A private name, but argparse offers no other way to ask, and SGLang's own merger of
    # --config files reads the same list.
    if any("--enable-probe" in action.option_strings for action in parser._actions):
        return
    group = parser.add_argument_group("EAGLE-3 probe (sglang-eagle3-probe)")
    group.add_argument(
        "--enable-probe",
        action=_EnableProbe,
        help="Patch and instrument EAGLE-3 speculative decoding; write a trace. "
        "Same as SGLANG_EAGLE3_PROBE=1.",
    )
    group.add_argument(
        "--probe-dir",
        action=_ProbeDirectory,
        metavar="DIR",
        help="Folder for the probe's trace files (default: probe-logs). "
        "Same as SGLANG_EAGLE3_PROBE_DIR.",
    )
    group.add_argument(
        "--probe-all-layers",
        action=_ProbeAllLayers,
        type=int,
        metavar="N",
        help="Capture the first N requests with every layer's hidden states, for "
        "sglang-eagle3-probe infer-layers. Same as SGLANG_EAGLE3_PROBE_LEVEL=capture and "
        "SGLANG_EAGLE3_PROBE_ALL_LAYERS=N.",
    )


# SGLang's --config merger tells flags from options by this class, hence the private base.
class _EnableProbe(argparse._StoreTrueAction):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, values, option_string)
        settings.enable()
        try:
            settings.Settings.from_environment()
        except settings.SettingsError as error:
            parser.error(str(error))


class _ProbeDirectory(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        settings.set_directory(str(values))


class _ProbeAllLayers(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if values < 1:
            parser.error(f"argument {option_string}: {values} is not at least 1")
        setattr(namespace, self.dest, values)
        settings.capture_all_layers(values)
