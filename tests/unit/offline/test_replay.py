"""Every fault of an engine, a config or its weights is named by its replay, and a healthy pair is
called healthy. The engine is simulated (``simulated_engine``), with fixture models behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import simulated_engine as simulated  # noqa: E402
from fixtures import draft_variant, materialise  # noqa: E402
from simulated_engine import Engine  # noqa: E402

from sglang_eagle3_probe.cli.main import main  # noqa: E402
from sglang_eagle3_probe.offline.captured import read_requests  # noqa: E402
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft  # noqa: E402
from sglang_eagle3_probe.offline.replaying import replay as replaying  # noqa: E402
from sglang_eagle3_probe.offline.replaying.replay import Replay, replay  # noqa: E402
from sglang_eagle3_probe.offline.replaying.replay_verdict import (  # noqa: E402
    Verdict,
    first_difference,
    verdict,
)
from sglang_eagle3_probe.report.replay import lines  # noqa: E402

NAME = "deepseek-draft-embed"
TRAINED = (0, 3, 6)
PROMPTS, TOKENS = 12, 64


@dataclass(frozen=True)
class Made:
    """A target, texts of it, and what captures them."""

    target: Path
    work: Path
    texts: simulated.Texts
    table: Any

    def capture(self, name: str, draft: Path, engine: Engine, **more: Any) -> Path:
        trained = simulated.load_draft(draft, NAME, engine.theta)
        folder = self.work / f"capture-{name}"
        return simulated.capture(folder, self.texts, self.table, trained, TRAINED, engine, **more)

    def replayed(self, capture: Path, draft: Path) -> tuple[Replay, Verdict]:
        found = replay(
            read_requests(capture),
            ReferenceDraft.load(draft, target=self.target),
            rows=384,
            rounds=96,
        )
        return found, verdict(found)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    work = tmp_path_factory.mktemp("replay")
    target = materialise("deepseek", work / "target")
    texts = simulated.Texts.of(target, simulated.prompts(PROMPTS), TOKENS)
    return Made(target, work, texts, simulated.embedding_of(target))


@pytest.fixture(scope="module")
def draft(made: Made) -> Path:
    return materialise(NAME, made.work / "draft")


@pytest.fixture(scope="module")
def healthy(made: Made, draft: Path) -> Path:
    return made.capture("healthy", draft, Engine())


def plain(place: Path) -> Path:
    return materialise(NAME, place)


@dataclass(frozen=True)
class Fault:
    """A fault, and what must be said of it."""

    engine: Engine
    kind: str
    says: str
    fix: str
    draft: Callable[[Path], Path] = field(default=plain)


def direct_map(place: Path) -> Path:
    """A draft whose d2t holds target ids."""
    from safetensors.torch import load_file, save_file

    folder = materialise(NAME, place)
    tensors = load_file(folder / "model.safetensors")
    tensors["d2t"] = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


FAULTS = {
    "ids shifted in the engine": Fault(
        Engine(shift=-1),
        "engine",
        "the token of the row itself beside each row, not the token after it.",
        "rotates the ids",
    ),
    "ids shifted in each draft step": Fault(
        Engine(shift=-1, shifted="steps"),
        "engine",
        "beside each row, not the token after it, and so in every draft step",
        "rotates the ids",
    ),
    "ids of prompts shifted": Fault(
        Engine(shift=-1, shifted="prompt"),
        "engine",
        "the token of the row itself beside each row of a prompt",
        "rotates the ids",
    ),
    "slots permuted": Fault(
        Engine(slot_order=(1, 2, 0)), "states", "the slots in order 2, 0, 1", "[1, 2, 0]"
    ),
    "embedding not captured": Fault(
        Engine(boundaries=(3, 6, 9)),
        "states",
        "the target's embedding as the first state (boundaries 0, 3, 6)",
        "eagle_aux_hidden_state_layer_ids to",
    ),
    "fc skipped": Fault(Engine(fc=False), "engine", "does not run fc", "EAGLE3"),
    "offsets read as ids": Fault(
        Engine(direct_map=True), "engine", "takes the values of d2t for target ids", "hot_token_id"
    ),
    "ids stored for offsets": Fault(
        Engine(), "states", "with target ids in d2t", "d2t - arange", direct_map
    ),
    "theta x 10": Fault(
        Engine(theta=1e5),
        "states",
        "with rotary theta 10000, not 100000",
        '"rope_theta": 10000',
        lambda place: draft_variant(NAME, place, config_overrides={"rope_theta": 1e5}),
    ),
    "last norm missing": Fault(
        Engine(),
        "states",
        "its own is missing from its files",
        "norm.weight",
        lambda place: draft_variant(NAME, place, drop_tensors=["norm.weight"]),
    ),
    "state handed on after the norm": Fault(
        Engine(norm_output=True), "engine", "the last norm to the state", "norm_output"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name: str, made: Made) -> None:
    fault = FAULTS[name]
    label = name.replace(" ", "-")
    folder = fault.draft(made.work / f"draft-{label}")
    found, judged = made.replayed(made.capture(label, folder, fault.engine), folder)
    assert judged.kind == fault.kind, judged
    assert fault.says in judged.sentence, judged
    assert fault.fix in judged.fix, judged
    assert (found.whole.different.hits > 0) == (fault.kind == "engine")


@pytest.mark.parametrize(
    "name",
    [
        "slots permuted",
        "embedding not captured",
        "offsets read as ids",
        "state handed on after the norm",
    ],
)
def test_faults_of_large_drafts_are_named_from_a_first_look(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "affordable", lambda _draft: 200)
    fault, label = FAULTS[name], "large-" + name.replace(" ", "-")
    folder = fault.draft(made.work / f"draft-{label}")
    found = replay(
        read_requests(made.capture(label, folder, fault.engine)),
        ReferenceDraft.load(folder, target=made.target),
    )
    judged = verdict(found)
    assert judged.kind == fault.kind, judged
    assert fault.says in judged.sentence, judged
    aside = [o for o in found.outcomes if o.set_aside]
    ended = [o for o in found.outcomes if not o.set_aside and not o.failed]
    assert len(aside) > len(ended) > 1
    # Rows near the end of an answer do not know the targets of all steps.
    assert {len(o.leading) for o in ended} == {len(found.base.leading)}
    assert 150 < len(found.base.leading) <= 200
    assert {len(o.leading) for o in aside} <= {99, 100}
    assert {o.length for o in aside} == {None}
    text = "\n".join(line.text for line in lines(found, judged, 200))
    assert f"{len(aside)} variations without an accept length" in text


def test_rows_asked_for_are_judged_in_every_variation(
    made: Made, draft: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "affordable", lambda _draft: 200)
    found = replay(
        read_requests(healthy), ReferenceDraft.load(draft, target=made.target), rows=96, rounds=32
    )
    assert len({len(o.leading) for o in found.outcomes if not o.failed}) == 1
    assert 70 < len(found.base.leading) <= 96
    assert not any(o.set_aside for o in found.outcomes)
    assert verdict(found).kind == "healthy"


def test_the_fix_for_permuted_slots_repairs_the_draft(made: Made, draft: Path) -> None:
    capture = made.capture("to-repair", draft, Engine(slot_order=(1, 2, 0)))
    repaired = draft_variant(NAME, made.work / "repaired", fc_block_order=(1, 2, 0))
    found = replay(
        read_requests(capture), ReferenceDraft.load(repaired, target=made.target), vary=False
    )
    assert (found.whole.accuracy[0].share or 0.0) > 0.7


def test_healthy_pair(made: Made, draft: Path, healthy: Path) -> None:
    found, judged = made.replayed(healthy, draft)
    assert judged.kind == "healthy"
    assert judged.fix == ""
    assert first_difference(found) is None
    assert all(a.same == a.compared and a.compared > 200 for a in found.whole.agreement)
    assert max(found.hidden) < 1e-5
    assert found.handed is not None
    assert found.handed[0] == 0
    # What the trainer measured on other answers of the same kind of text.
    assert found.trainer is not None
    assert found.trainer.accuracy is not None
    assert found.whole.accuracy[0].share == pytest.approx(found.trainer.accuracy[0], abs=0.1)


def test_free_running_starts_like_teacher_forced_and_falls_behind(
    made: Made, draft: Path, healthy: Path
) -> None:
    found, _ = made.replayed(healthy, draft)
    shares = [share.share or 0.0 for share in found.free]
    assert shares[0] > shares[1] > shares[2] > 0.2
    assert shares[2] < (found.whole.accuracy[2].share or 0.0)


def test_accept_length_is_that_of_the_engines_own_rounds(made: Made, draft: Path) -> None:
    """Free-running hits from the first step on are what the engine accepted."""
    capture = made.capture("lengths", draft, Engine())
    accepted = rounds = 0
    for request in read_requests(capture):
        accepted += int((request.rounds["accepted_nodes"][:, 1:] >= 0).sum())
        rounds += len(request.rounds["accepted_nodes"])
    found, _ = made.replayed(capture, draft)
    assert found.rounds == rounds
    assert found.free[0].hits <= accepted <= sum(share.hits for share in found.free)


def test_near_ties_are_counted_as_ties(made: Made, draft: Path) -> None:
    found, judged = made.replayed(made.capture("ties", draft, Engine(rounded=True)), draft)
    assert judged.kind == "healthy"
    assert sum(a.ties for a in found.whole.agreement) > 0
    assert found.whole.different.hits == 0
    assert any("ties within rounding" in detail for detail in judged.details)


def test_first_difference_is_the_state_when_tokens_agree(made: Made, draft: Path) -> None:
    capture = made.capture("norm", draft, Engine(norm_output=True))
    first = first_difference(made.replayed(capture, draft)[0])
    assert first is not None
    assert (first.step, first.tensor) == (0, "recurrent state")
    assert "norm_output" in first.meaning


def test_first_difference_without_states_is_a_token(made: Made, draft: Path) -> None:
    capture = made.capture("no-states", draft, Engine(norm_output=True), with_hidden=False)
    first = first_difference(made.replayed(capture, draft)[0])
    assert first is not None
    assert (first.step, first.tensor) == (1, "draft token")


def test_states_of_the_drafts_width_mean_that_fc_is_not_run(made: Made, draft: Path) -> None:
    one = simulated.Texts(made.texts.prompts[:3], made.texts.ids[:3], made.texts.states[:3])
    trained = simulated.load_draft(draft, NAME)
    folder = simulated.capture(
        made.work / "eagle", one, made.table, trained, TRAINED, Engine(boundaries=(9,), fc=False)
    )
    _, judged = made.replayed(folder, draft)
    assert judged.kind == "engine"
    assert "does not run fc" in judged.sentence


def test_command(
    made: Made, draft: Path, healthy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["replay", str(healthy), "--draft", str(draft), "--target", str(made.target)]
    assert main([*given, "--no-variations"]) == 0
    assert capsys.readouterr().out.startswith("Healthy: ")
    assert main([*given, "--json", "--rows", "64"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["kind"] == "healthy"
    lengths = [row["accept_length"] for row in found["variations"] if not row["failed"]]
    assert lengths == sorted(lengths, reverse=True)
    low, high = found["as_configured"]["accuracy"][0]["interval"]
    assert low < found["as_configured"]["accuracy"][0]["share"] < high


def test_command_names_a_fault(made: Made, draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = made.capture("command", draft, Engine(slot_order=(1, 2, 0)))
    given = ["replay", str(capture), "--draft", str(draft), "--target", str(made.target)]
    assert main([*given, "--rows", "200"]) == 1
    shown = capsys.readouterr().out
    assert "slots in order 2, 0, 1" in shown.split("Variations on", 1)[1].splitlines()[2]
    assert "Fix: " in shown


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--draft", "nowhere"], "does not exist"),
        (["--rows", "0"], "is no count"),
        (["--target", "nowhere"], "does not exist"),
    ],
)
def test_what_cannot_run(
    change: list[str], says: str, made: Made, draft: Path, healthy: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = ["replay", str(healthy), "--draft", str(draft), "--target", str(made.target)]
    assert main([*given, *change]) == 2
    assert says in capsys.readouterr().err


def test_without_the_target(
    made: Made, draft: Path, healthy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(healthy), "--draft", str(draft)]) == 2
    assert "--target" in capsys.readouterr().err


def test_prompts_alone_are_not_judged(
    made: Made, draft: Path, healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = sorted(healthy.iterdir())[0]
    (tmp_path / prompt.name).write_bytes(prompt.read_bytes())
    given = ["replay", str(tmp_path), "--draft", str(draft), "--target", str(made.target)]
    assert main(given) == 2
    assert "hold 1 tokens of answers and 0 rounds" in capsys.readouterr().err


def test_no_captures(tmp_path: Path, draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path), "--draft", str(draft)]) == 2
    assert "SGLANG_EAGLE3_PROBE_LEVEL=capture" in capsys.readouterr().err


def test_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['safetensors'] = None\n"
        "from sglang_eagle3_probe.cli.main import main\n"
        f"sys.exit(main(['replay', {str(tmp_path)!r}, '--draft', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'sglang-eagle3-probe[offline]'" in done.stderr
