"""``report --predicted --plain`` and ``diff``, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.cli.test_cli import run
from unit.trace import samples
from unit.trace.traffic_samples import clean_with, phase_times, served

MODELS = Path(__file__).parents[2] / "fixtures" / "models"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    made = served(requests=24, chances=(0.83, 0.85, 0.86), gap_ms=25.0)
    samples.write(tmp_path / "trace", clean_with(made.records))
    return tmp_path / "trace"


def test_predicted_takes_the_file_beside_the_draft(trace: Path) -> None:
    file = MODELS / "deepseek-draft-embed" / "trainer_accuracy.json"
    done = run("report", trace, "--predicted", file)
    assert done.returncode == 0
    assert "3.14 by survival" in done.stdout
    value = json.loads(run("report", trace, "--predicted", file, "--json").stdout)
    assert value["prediction"]["pattern"] == "none"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"accuracy": [74.7]}', "{" * 5000, '{"accuracy": [0.5'], ids=range(5)
)
def test_hostile_predictions(trace: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "evil.json"
    file.write_text(text, encoding="utf-8")
    done = run("report", trace, "--predicted", file)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Fix: " in done.stderr


def test_predictions_that_cannot_be_read(trace: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "none.json", tmp_path):
        done = run("report", trace, "--predicted", place)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_plain_as_a_rate(trace: Path) -> None:
    batch = json.loads(run("report", trace, "--plain", "40", "--json").stdout)["economics"]
    (found,) = batch["batches"]
    assert found["plain_ms"] == 25.0
    assert found["break_even"] == pytest.approx(1.0, rel=0.02)
    other = json.loads(run("report", trace, "--plain", "40@8", "--json").stdout)["economics"]
    assert other["batches"][0]["break_even"] is None
    fast = run("report", trace, "--plain", "400")
    assert fast.returncode == 1
    assert "E3P631" in fast.stdout


def test_plain_as_a_run_without_speculation(trace: Path, tmp_path: Path) -> None:
    times = phase_times(ms={"decode": 8.0})
    samples.write(tmp_path / "plain", [samples.seams(), times])
    with_phases = tmp_path / "with_phases"
    made = served(requests=24)
    samples.write(with_phases, clean_with([*made.records, phase_times()]))
    value = json.loads(run("report", with_phases, "--plain", tmp_path / "plain", "--json").stdout)
    assert value["economics"]["plain_source"] == "decode phases of plain"
    assert value["economics"]["batches"][0]["break_even"] == 2.0
    assert value["economics"]["batches"][0]["basis"] == "phases"
    # A trace without plain steps is no calibration.
    done = run("report", with_phases, "--plain", trace)
    assert done.returncode == 2
    assert "holds no times of plain decode steps" in done.stderr


@pytest.mark.parametrize("text", ["0", "no/such/dir", "90@", "-5", "1e400", "9" * 400])
def test_plain_that_is_neither(trace: Path, text: str) -> None:
    done = run("report", trace, f"--plain={text}")
    assert done.returncode == 2
    assert "Fix: " in done.stderr


def test_acceptance_alone(trace: Path) -> None:
    done = run("report", trace, "--acceptance")
    assert done.returncode == 0
    assert "Wiring" not in done.stdout
    assert "What it is worth" in done.stdout
    several = run("report", trace, trace, "--acceptance")
    assert several.stdout.count("What it is worth") == 2


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path, Path]:
    for name, seed, chances in (
        ("before", 1, (0.76, 0.74, 0.72)),
        ("again", 2, (0.76, 0.74, 0.72)),
        ("worse", 3, (0.6, 0.6, 0.6)),
    ):
        made = served(requests=24, seed=seed, chances=chances)
        samples.write(tmp_path / name, clean_with(made.records))
    return tmp_path / "before", tmp_path / "again", tmp_path / "worse"


def test_diff_says_whether_it_is_real(runs: tuple[Path, Path, Path]) -> None:
    before, again, worse = runs
    noise = run("diff", before, again)
    assert noise.returncode == 0
    assert noise.stdout.startswith("no difference beyond noise between before and again")
    assert "could hide in it" in " ".join(noise.stdout.split())
    real = run("diff", before, worse)
    assert real.returncode == 1
    assert real.stdout.startswith("worse accepts really less than before: -0.")
    assert max(map(len, real.stdout.splitlines())) <= 100
    better = run("diff", worse, before)
    assert better.returncode == 0
    assert "accepts really more" in better.stdout
    assert run("diff", worse, before, "--fail-on", "different").returncode == 1


def test_diff_as_json(runs: tuple[Path, Path, Path]) -> None:
    before, _, worse = runs
    value = json.loads(run("diff", before, worse, "--json").stdout)
    assert value["answer"] == "shorter"
    assert value["exit_code"] == 1
    assert value["interval"][0] < value["difference"] < value["interval"][1] < 0
    assert value["a"]["name"] == "before"
    assert value["positions"][0]["real"] is True


def test_diff_that_cannot_tell(runs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    few = tmp_path / "few"
    samples.write(few, clean_with(served(requests=2).records))
    done = run("diff", runs[0], few)
    assert done.returncode == 2
    assert "cannot tell before from few" in done.stdout
    assert "Fix: serve more requests" in done.stderr
    assert run("diff", runs[0], tmp_path / "none").returncode == 2
