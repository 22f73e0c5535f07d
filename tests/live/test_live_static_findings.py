"""The static rules inside the server: in its log, its trace and the report, without false alarm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, cli, probed, probed_pair, tokens

from sglang_eagle3_probe.trace.records import Fault
from sglang_eagle3_probe.trace.static_records import StaticFindings


def judged(run: Probed) -> StaticFindings:
    """The record, once it is there."""
    trace = run.trace(lambda t: bool(t.processes[0].of(StaticFindings)))
    [process] = trace.processes
    [record] = process.of(StaticFindings)
    assert isinstance(record, StaticFindings)
    return record


def serious(record: StaticFindings) -> set[str]:
    return {f.code for f in record.findings if f.severity != "note"}


def report(run: Probed) -> dict[str, Any]:
    shown = cli("report", str(run.traces), "--json")
    assert shown.returncode in (0, 1), shown.stderr
    made: dict[str, Any] = json.loads(shown.stdout)
    assert made["exit_code"] == shown.returncode
    return made


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("deepseek", "deepseek-draft-embed"),
        ("deepseek", "deepseek-draft-default"),
        ("llama", "llama-draft"),
        ("kimi", "deepseek-draft-embed"),
    ],
)
def test_a_draft_served_right_is_no_fault(
    models: Models, tmp_path: Path, target: str, draft: str
) -> None:
    extra = ["--trust-remote-code"] if target == "kimi" else []
    with probed(models[target], models[draft], tmp_path, extra_args=extra) as run:
        run.server.generate([[5, 6, 7, 8]], max_new_tokens=8)
        record = judged(run)
    assert record.rules > 50
    assert serious(record) == set(), record.findings
    assert record.unknown == []
    assert record.notes == []
    assert record.arguments["speculative_num_draft_tokens"] == 4
    assert "0 errors, 0 warnings" in run.log
    made = report(run)
    assert [f for f in made["findings"] if f["severity"] != "note"] == []


def test_the_trained_layers_by_variable(models: Models, tmp_path: Path) -> None:
    """Without the variable's list, the config would be at fault twice over."""
    draft = models.variant(
        "deepseek-draft-embed",
        "unread",
        drop_eagle_config=True,
        config_overrides={"eagle_aux_hidden_state_layer_ids": [-1, 2, 5]},
    )
    with probed(models["deepseek"], draft, tmp_path, variables={"layer_ids": "-1,2,5"}) as run:
        run.server.generate([[5, 6, 7, 8]], max_new_tokens=8)
        record = judged(run)
    assert serious(record) == set(), record.findings


def test_a_fault_that_only_files_show(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    draft = models.variant(
        "deepseek-draft-default", "theta", config_overrides={"rope_theta": 1000000.0}
    )
    with probed(models["deepseek"], draft, tmp_path) as run:
        assert tokens(run.server.generate(prompts[:4], max_new_tokens=32)) == [
            t[:32] for t in plain[:4]
        ]
        record = judged(run)
    assert serious(record) == {"E3P513"}
    [line] = [line for line in run.log_lines if line.startswith("E3P513")]
    assert "Fix: " in line
    made = report(run)
    [finding] = [f for f in made["findings"] if f["code"] == "E3P513"]
    assert finding["source"] == "files"
    assert finding["evidence"]
    assert made["exit_code"] == 1
    text = " ".join(cli("report", str(run.traces)).stdout.split())
    assert "E3P513" in text
    assert "(from the files)" in text


def test_a_fault_seen_twice_is_said_once(models: Models, tmp_path: Path) -> None:
    draft = models.variant("deepseek-draft-embed", "late", aux_layer_ids=[3, 6, 9])
    with probed(models["deepseek"], draft, tmp_path) as run:
        run.server.generate([[5, 6, 7, 8]], max_new_tokens=8)
        record = judged(run)
    assert "E3P124" in serious(record)
    assert [line for line in run.log_lines if line.startswith("E3P124 error: ")]
    made = report(run)
    codes = [f["code"] for f in made["findings"]]
    assert codes.count("E3P101") == 1
    assert "E3P124" not in codes
    [finding] = [f for f in made["findings"] if f["code"] == "E3P101"]
    assert "E3P124" in finding["also"]


def test_stock_sglang_with_the_embedding_is_still_a_fault(models: Models, tmp_path: Path) -> None:
    """The patches are off: nothing makes -1 work, and the log says so before the first request."""
    with probed_pair(models, tmp_path, variables={"patches": "none"}) as run:
        record = judged(run)
    assert "E3P115" in serious(record)


def test_rules_that_raise_change_no_token(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(models, tmp_path, variables={"fail_site": "static_rules"}) as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        trace = run.trace(lambda t: bool(t.processes[0].of(Fault)))
    assert [f.site for f in trace.processes[0].of(Fault)] == ["static_rules"]
    assert trace.processes[0].of(StaticFindings) == []
    assert "tap static_rules raised" in run.log
