"""SGLang 0.5.10.post1, which has no plugins, started by the probe's launcher.

Without a draft: V1 needs kernels that the rig has not. What is shown is that the launcher serves,
and that the spawned scheduler is patched before it builds anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Models
from contract.served.releases import folder_of
from probed import Probed, newest, probed

from sglang_eagle3_probe.trace.acceptance_records import RequestEnd
from sglang_eagle3_probe.trace.records import Arguments, Fault, Seams

RELEASE = "0.5.10.post1"
NEW_TOKENS = 8


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    folder = folder_of(RELEASE)
    if folder is None:
        pytest.skip(f"SGLang {RELEASE} is not here: scripts/release_environment {RELEASE}")
    with probed(
        models["llama"],
        None,
        tmp_path_factory.mktemp("before-plugins"),
        entry="probe_launcher",
        release=folder,
        no_graphs=["--disable-cuda-graph"],
        ready_path="/get_model_info",
        extra_args=["--attention-backend", "torch_native", "--disable-overlap-schedule"],
    ) as run:
        yield run


def test_the_scheduler_has_the_probe(served: Probed, prompts: list[list[int]]) -> None:
    answers = served.server.generate(prompts[:2], max_new_tokens=NEW_TOKENS, ignore_eos=True)
    assert [len(answer.output_ids) for answer in answers] == [NEW_TOKENS, NEW_TOKENS]
    trace = served.trace(lambda t: len(list(t.processes[0].of(RequestEnd))) == len(answers))
    assert trace.processes[0].header.sglang_version == RELEASE
    states = {state.name: state.state for state in newest(trace, Seams).seams}
    assert "failed" not in states.values()
    for name in ("scheduler_start", "target_loaded", "layer_ids", "target_logits"):
        assert states[name] == "patched", name
    ends = list(trace.processes[0].of(RequestEnd))
    assert [end.output_tokens for end in ends] == [NEW_TOKENS, NEW_TOKENS]
    assert list(trace.processes[0].of(Fault)) == []
    assert newest(trace, Arguments).in_force["attention_backend"] == "torch_native"
