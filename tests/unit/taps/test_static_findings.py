"""What the scheduler's thread picks up for the static rules, when, and that it reads no file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.checkpoint import checkpoint_files as files
from unit.trace import samples

from sglang_eagle3_probe.host.call import Binder, Call
from sglang_eagle3_probe.host.session import Session
from sglang_eagle3_probe.settings import Settings
from sglang_eagle3_probe.taps import static_findings
from sglang_eagle3_probe.taps.static_findings import (
    StaticFindingsTap,
    arguments_in_force,
    as_meant,
    live_facts,
    served_now,
)
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import Fault, Ranks
from sglang_eagle3_probe.trace.static_records import StaticFindings


def server_args(**changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "model_path": "target",
        "speculative_draft_model_path": "draft",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "dtype": "auto",
        "kv_cache_dtype": "auto",
        "quantization": None,
        "speculative_draft_model_quantization": None,
        "context_length": None,
        "json_model_override_args": "{}",
        "nnodes": 1,
        "_launch_command": "",
    }
    return SimpleNamespace(**{**values, **changes})


def runner(dtype: str = "torch.bfloat16", **changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        model_config=SimpleNamespace(dtype=dtype, context_len=4096), model=None, **changes
    )


def worker(**changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "target_worker": SimpleNamespace(model_runner=runner()),
        "draft_runner": runner(),
    }
    return SimpleNamespace(**{**values, **changes})


def force(worker_: Any = None, **args: Any) -> dict[str, Any]:
    return arguments_in_force(server_args(**args), worker_ or worker())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(Settings(enabled=True, dir=str(tmp_path / "traces")))
    made.release = "0.5.23"
    made.server_args = server_args(
        model_path=str(files.target(tmp_path / "target")),
        speculative_draft_model_path=str(files.draft(tmp_path / "draft")),
    )
    yield made
    made.recorder.close("test")


def call(instance: Any) -> Call:
    return Call(Binder({}), lambda: None, instance, (), {})


def fire(tap: Any, instance: Any) -> None:
    assert tap.run(lambda _call: "the host's", call(instance)) == "the host's"


def records(session: Session, kind: type, *, wait: bool = True) -> list[Any]:
    deadline = time.monotonic() + 10
    while True:
        session.recorder.flush()
        found: list[Any] = []
        if session.recorder.path is not None:
            found = read(session.recorder.path.parent).processes[0].of(kind)
        if found or not wait:
            return found
        assert time.monotonic() < deadline, f"no {kind.__name__}"
        time.sleep(0.05)


# -- arguments ----------------------------------------------------------------------------------


def test_what_the_loaded_models_know_goes_before_the_arguments() -> None:
    found = force(worker(speculative_num_steps=5, speculative_num_draft_tokens=6))
    assert found["speculative_num_steps"] == 5
    assert found["speculative_num_draft_tokens"] == 6
    assert found["context_length"] == 4096
    assert found["dtype"] == "bfloat16"
    assert "quantization" not in found


def test_dtypes_that_differ_are_left_for_the_rule() -> None:
    assert force(worker(draft_runner=runner("torch.float16")))["dtype"] == "auto"


def test_kv_cache_dtype_that_sglang_found_out() -> None:
    held = runner(kv_cache_dtype="torch.float8_e4m3fn")
    assert force(worker(target_worker=SimpleNamespace(model_runner=held)))["kv_cache_dtype"] == (
        "fp8_e4m3"
    )
    assert force()["kv_cache_dtype"] == "auto"


@pytest.mark.parametrize(
    ("draft", "explicit", "asked", "expected"),
    [
        ("fp8", False, {}, None),  # inherited: E3P520 has something to say
        ("fp8", None, {}, None),
        ("fp8", True, {}, "fp8"),
        ("fp8", None, {"speculative_draft_model_quantization": "fp8"}, "fp8"),
        (None, True, {}, "unquant"),
        ("awq", True, {}, "awq"),
    ],
)
def test_quantization_of_the_draft_as_it_was_meant(
    draft: str | None, explicit: bool | None, asked: dict[str, Any], expected: str | None
) -> None:
    found = as_meant(
        force(quantization="fp8", speculative_draft_model_quantization=draft), explicit, asked
    )
    assert found.get("speculative_draft_model_quantization") == expected


def test_without_quantization_there_is_nothing_to_undo() -> None:
    assert as_meant(force(), None, {}) == force()


def test_without_a_draft_there_is_nothing_to_judge(session: Session) -> None:
    session.server_args = server_args(speculative_draft_model_path=None)
    assert served_now(session, worker()) is None


def test_facts_of_the_wiring_records(session: Session) -> None:
    assert live_facts(session).patches == frozenset()
    session.layer_ids = samples.layer_ids([-1, 2, 5])
    session.weights = samples.weights(not_taken=["x"])
    session.vocab_map = samples.vocab_map()
    found = live_facts(session)
    assert found.patches == {"embedding_capture", "capture_order", "ids_before_graphs"}
    assert found.boundaries == (0, 3, 6)
    assert found.ids == (-1, 2, 5)
    assert found.not_taken == ("x",)
    assert found.map_in_force
    assert not found.unit_was_set


@pytest.mark.parametrize("by_source", [False, True])
def test_patched_source_counts_as_the_patches(session: Session, by_source: bool) -> None:
    """Also where the user leaves the plugin's own patches off."""
    session.settings = replace(session.settings, patches=frozenset())
    session.layer_ids = samples.layer_ids([-1, 2, 5])
    session.layer_ids.source_patched = by_source
    expected = {"embedding_capture", "capture_order"} if by_source else set()
    assert live_facts(session).patches == expected


# -- when and where -----------------------------------------------------------------------------


def test_it_starts_once_when_draft_and_layer_ids_are_there(session: Session) -> None:
    tap = StaticFindingsTap(session)
    fire(tap.built, worker())
    assert records(session, StaticFindings, wait=False) == []
    session.layer_ids = samples.layer_ids([1, 15, 28])
    fire(tap.layer_ids, None)
    fire(tap.built, worker())
    fire(tap.scheduler, SimpleNamespace(draft_worker=worker()))
    [record] = records(session, StaticFindings)
    time.sleep(0.3)
    assert len(records(session, StaticFindings)) == 1
    assert record.rules > 50
    assert record.draft_path == session.server_args.speculative_draft_model_path


def test_the_scheduler_is_the_last_resort(session: Session) -> None:
    tap = StaticFindingsTap(session)
    fire(tap.scheduler, SimpleNamespace(draft_worker=SimpleNamespace(draft_worker=worker())))
    assert records(session, StaticFindings)


def test_files_are_read_on_another_thread(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang_eagle3_probe.checkpoint import files as checkpoint

    here: list[str] = []
    whole = checkpoint.os.open

    def noting(*args: Any, **kwargs: Any) -> int:
        here.append(threading.current_thread().name)
        return whole(*args, **kwargs)

    monkeypatch.setattr(checkpoint.os, "open", noting)
    for name in ("read_text", "read_bytes"):
        monkeypatch.setattr(Path, name, _noting(getattr(Path, name), here))
    del session.server_args._launch_command  # then the command line is looked for in /proc
    tap = StaticFindingsTap(session)
    fire(tap.scheduler, SimpleNamespace(draft_worker=worker()))
    assert records(session, StaticFindings)
    read_by = {name for name in here if not name.startswith("eagle3-probe-writer")}
    assert read_by == {"eagle3-probe-static-rules"}


def _noting(method: Any, here: list[str]) -> Any:
    def noting(*args: Any, **kwargs: Any) -> Any:
        here.append(threading.current_thread().name)
        return method(*args, **kwargs)

    return noting


def test_a_fault_in_the_rules_is_ours_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(static_findings, "local_model", broken)
    tap = StaticFindingsTap(session)
    fire(tap.scheduler, SimpleNamespace(draft_worker=worker()))
    [fault] = records(session, Fault)
    assert fault.site == "static_rules"
    assert "ZeroDivisionError" in fault.error


def test_files_that_are_not_here_are_one_line(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    session.server_args.model_path = "org/not-here"
    with caplog.at_level(logging.INFO, "sglang_eagle3_probe"):
        fire(StaticFindingsTap(session).scheduler, SimpleNamespace(draft_worker=worker()))
        [record] = records(session, StaticFindings)
    lines = [r.getMessage() for r in caplog.records if "static rules" in r.getMessage()]
    assert len(lines) == 1
    assert "static rules did not run: org/not-here does not exist" in lines[0]
    assert (record.rules, record.findings) == (0, [])


def test_each_error_and_warning_is_one_line_of_the_log(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sglang_eagle3_probe"):
        fire(StaticFindingsTap(session).scheduler, SimpleNamespace(draft_worker=worker()))
        [record] = records(session, StaticFindings)
        time.sleep(0.2)
    serious = [f for f in record.findings if f.severity != "note"]
    assert serious, "this draft lacks most of its layer"
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    for finding, line in zip(serious, warned, strict=True):
        assert line.startswith(f"eagle3-probe: {finding.code} {finding.severity}: ")
        assert finding.fix in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("ranks", "nnodes", "speaks"),
    [
        (Ranks(), 1, True),
        (Ranks(tp_rank=0, tp_size=8), 1, True),
        (Ranks(tp_rank=3, tp_size=8), 1, False),
        (Ranks(tp_rank=8, tp_size=16), 2, True),
        (Ranks(tp_rank=9, tp_size=16), 2, False),
        (Ranks(tp_rank=0, tp_size=1, dp_rank=1, dp_size=2), 1, False),
    ],
)
def test_one_process_of_each_host(
    session: Session, ranks: Ranks, nnodes: int, speaks: bool
) -> None:
    session.ranks = ranks
    session.server_args.nnodes = nnodes
    assert session.ranks_speak_for_host() is speaks
    fire(StaticFindingsTap(session).scheduler, SimpleNamespace(draft_worker=worker()))
    assert bool(records(session, StaticFindings, wait=speaks)) is speaks
