"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from unit.trace import samples

from sglang_eagle3_probe import __version__
from sglang_eagle3_probe.rules.registry import RULES
from sglang_eagle3_probe.trace.recorder import Recorder
from sglang_eagle3_probe.trace.records import SlotStats

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "sglang_eagle3_probe.cli.main"]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def run(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(**changes),
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def test_exit_codes(tmp_path: Path) -> None:
    samples.write(tmp_path / "good", samples.clean())
    samples.write(tmp_path / "bad", samples.owners_case())
    assert run("report", tmp_path / "good").returncode == 0
    bad = run("report", tmp_path / "bad")
    assert bad.returncode == 1
    assert bad.stdout.startswith(" WRONG ")
    assert run("report", tmp_path / "good", tmp_path / "bad").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "no/such/dir"],
        ["report", "."],
        ["report", "pyproject.toml"],
        ["show", "no/such/dir", "--record", "layer_ids"],
        ["show", ".", "--record", "nonsense"],
        ["explain", "E3P000"],
        ["report"],
        ["report", ".", "--width", "3"],
        ["tail", ".", "--window", "-1"],
        [],
    ],
)
def test_bad_input_is_a_message_and_exit_code_2(arguments: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "sglang-eagle3-probe" in done.stderr
    assert "Traceback" not in done.stderr


def test_tail_names_the_faults_in_the_files(tmp_path: Path) -> None:
    said = samples.static_findings(
        samples.static_finding(), samples.static_finding("E3P612", "note")
    )
    samples.write(tmp_path, [*samples.clean(), said])
    lines = run("tail", tmp_path, "--until-end", "--every", "0.1").stdout.splitlines()
    assert any("files of target and draft: 1 fault by 62 rules" in line for line in lines)
    [line] = [line for line in lines if samples.STATIC in line]
    assert f"{samples.STATIC} error: " in line
    assert "Fix: set" in line
    assert not any("E3P612" in line for line in lines)


def test_version() -> None:
    assert run("--version").stdout == f"sglang-eagle3-probe {__version__}\n"


def test_json_of_one_and_of_several(tmp_path: Path) -> None:
    samples.write(tmp_path / "a", samples.clean())
    assert json.loads(run("report", tmp_path / "a", "--json").stdout)["verdict"] == "clean"
    both = json.loads(run("report", tmp_path / "a", tmp_path / "a", "--json").stdout)
    assert [r["verdict"] for r in both] == ["clean", "clean"]


def test_colour_only_where_it_is_wanted(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean())
    assert "\x1b" not in run("report", tmp_path).stdout
    assert "\x1b[" in run("report", tmp_path, FORCE_COLOR="1").stdout
    plain = run("report", tmp_path, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[3" not in plain
    assert "\x1b[4" not in plain


def test_ascii_terminal(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.owners_case())
    done = run("report", tmp_path, "--width", "50", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stdout.isascii()


def test_without_rich_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    samples.write(tmp_path / "t", samples.clean())
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from sglang_eagle3_probe.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    def without_rich(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )

    done = without_rich("report", str(tmp_path / "t"))
    assert done.returncode == 2
    assert "pip install 'sglang-eagle3-probe[report]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert without_rich("report", str(tmp_path / "t"), "--json").returncode == 0
    assert without_rich("explain", "E3P101").returncode == 0


def test_reading_imports_neither_sglang_nor_torch(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean())
    code = (
        "import sys; from sglang_eagle3_probe.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "assert not {'sglang', 'torch', 'wrapt'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_show_prints_the_lines_as_written(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean(5))
    done = run("show", tmp_path, "--record", "verify_round", "--rank", "tp0")
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["context_lens"] for r in rounds] == [[50], [51], [52], [53], [54]]
    assert json.loads(run("show", tmp_path, "--record", "header").stdout)["pid"] == 4242
    other = run("show", tmp_path, "--record", "header", "--rank", "tp7")
    assert other.returncode == 2
    assert "scheduler tp0" in other.stderr


def test_show_into_a_closed_pipe(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean(20000))
    child = subprocess.Popen(
        [*COMMAND, "show", str(tmp_path), "--record", "verify_round"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(30) == 0


def test_explain(tmp_path: Path) -> None:
    listed = run("explain").stdout
    for rule in RULES:
        assert f"{rule.code}  {rule.title}" in listed
    assert run("explain", "e3p101").stdout.startswith("# E3P101: ")


def test_tail_waits_prints_wiring_and_ends(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    child = subprocess.Popen(
        [*COMMAND, "tail", str(directory), "--every", "0.2", "--until-end"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert child.stderr is not None
    assert "waiting for the server" in child.stderr.readline()
    recorder = Recorder(directory, "scheduler", samples.header)
    for record in samples.owners_case(200):
        recorder.emit(record)
    recorder.close("test")
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0
    assert "Traceback" not in err
    assert "BUT TRAINED ON [-1, 2, 5]" in out
    assert "scheduler tp0 draft decode: width 192 in, fc bypassed (right" in out
    assert "accept length 1." in out
    assert "ended: test" in out


def test_tail_says_non_finite_values_once(tmp_path: Path) -> None:
    records = samples.clean_with_values()
    for record in records:
        if isinstance(record, SlotStats) and record.site == "aux_verify":
            record.slots[1].nonfinite = 3
    records += [samples.stats_coverage(skipped={"decode2_in": {"dtype": n + 1}}) for n in range(4)]
    samples.write(tmp_path, records)
    lines = run("tail", tmp_path, "--until-end").stdout.splitlines()
    said = [line for line in lines if "NON-FINITE" in line]
    assert len(said) == 1  # every window has them
    assert said[0].endswith("NON-FINITE VALUES at aux_verify slot 1 (boundary h 3): 3 in 80 rows")
    assert len([line for line in lines if "NOT measured at decode2_in" in line]) == 1
    assert not [line for line in lines if "slot_stats" in line or "aux_prefill" in line]


def test_show_slot_stats(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean_with_values(2))
    done = run("show", tmp_path, "--record", "slot_stats")
    assert len(done.stdout.splitlines()) == 2 * len(samples.SITES)


def test_tail_ends_cleanly_on_interrupt(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean(3))
    child = subprocess.Popen(
        [*COMMAND, "tail", str(tmp_path), "--every", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert child.stdout is not None
    assert "started: SGLang" in child.stdout.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0
    assert err == ""
    assert "no verify round in the last 30 s" in out  # the sample's clock is not now
