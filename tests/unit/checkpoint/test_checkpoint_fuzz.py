"""Seeded mutations of valid files: nothing but CheckpointError may come out of any reader.

DOCTOR_FUZZ multiplies the rounds for a long run, DOCTOR_FUZZ_SEED makes it another one.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.checkpoint import checkpoint_files as make

from sglang_eagle3_probe.checkpoint.arguments import parse_arguments
from sglang_eagle3_probe.checkpoint.facts import CheckpointError, Situation
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.checkpoint.tokens import count_tokens
from sglang_eagle3_probe.cli.main import main
from sglang_eagle3_probe.report import doctor

ROUNDS = 1000 * int(os.environ.get("DOCTOR_FUZZ", "1"))
SEED = os.environ.get("DOCTOR_FUZZ_SEED", "")
NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 61, 2**31, 2**63, -(2**63), 10**40, 1e308, float("nan"),
    float("inf"), -0.0, "", "x", "\0", "\ud800", "../..", "a" * 5000, [], [[]], {}, {"a": {}},
    [1, 2, 3], [-1, 2, 30], [None], ["LlamaForCausalLMEagle3"], "\x1b[31m\n", [1] * 500,
)  # fmt: skip


def seeded(test: object) -> random.Random:
    """The same numbers in every run of a test, unless another seed is asked for."""
    return random.Random(f"{test} {SEED}" if SEED else test)  # type: ignore[arg-type]


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: cut, insert, flip, overwrite with extremes, repeat a piece."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(result) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del result[at:]
        elif kind == 1:
            result[at:at] = rng.randbytes(rng.randint(1, 9))
        elif kind == 2 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            result[at : at + 8] = rng.choice([b"\0" * 8, b"\xff" * 8, b"99999999", b'"]}[{":,'])
        elif kind == 4:
            end = at + rng.randint(1, 40)
            result[at:at] = result[at:end]
        elif at < len(result):
            del result[at : at + rng.randint(1, 30)]
    return bytes(result)


def mutated_object(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """Somewhere in a JSON value, something nasty."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(list(value))
        changed = dict(value)
        kind = rng.randrange(4)
        if kind == 0:
            del changed[key]
        elif kind == 1:
            changed[rng.choice(["", "text_config", "eagle_config", "\ud800"])] = rng.choice(NASTY)
        else:
            changed[key] = mutated_object(value[key], rng, depth + 1)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutated_object(value[at], rng, depth + 1), *value[at + 1 :]]
    return rng.choice(NASTY)


def survives(call: Callable[[], object]) -> bool:
    message: str | None = None
    try:
        call()
    except CheckpointError as error:
        message = str(error)
    assert message is None or (message and "\n" not in message)
    return message is None


def test_bytes_of_a_safetensors_file(tmp_path: Path) -> None:
    rng = seeded(1)
    place = make.draft(tmp_path)
    file = place / "model.safetensors"
    valid = file.read_bytes()
    read = 0
    for _ in range(ROUNDS):
        file.write_bytes(mutated_bytes(valid, rng))
        read += survives(lambda: read_checkpoint(str(place)))
    assert 0 < read < ROUNDS


def test_headers_of_a_safetensors_file(tmp_path: Path) -> None:
    rng = seeded(2)
    place = make.draft(tmp_path)
    file = place / "model.safetensors"
    valid = file.read_bytes()
    length = int.from_bytes(valid[:8], "little")
    header, data = json.loads(valid[8 : 8 + length]), valid[8 + length :]
    read = 0
    for _ in range(ROUNDS):
        changed = header
        for _ in range(rng.randint(1, 3)):
            changed = mutated_object(changed, rng)
        file.write_bytes(make.with_header(changed, data))
        read += survives(lambda: read_checkpoint(str(place)))
    assert 0 < read < ROUNDS


def test_bytes_of_a_config(tmp_path: Path) -> None:
    rng = seeded(3)
    file = make.target(tmp_path) / "config.json"
    valid = file.read_bytes()
    read = 0
    for _ in range(ROUNDS):
        file.write_bytes(mutated_bytes(valid, rng))
        read += survives(lambda: read_checkpoint(str(tmp_path)))
    assert 0 < read < ROUNDS


def test_index_in_bytes_and_values(tmp_path: Path) -> None:
    rng = seeded(4)
    place = make.draft(tmp_path)
    make.index(place, dict.fromkeys(make.DRAFT_TENSORS, "model.safetensors"))
    file = place / "model.safetensors.index.json"
    valid = file.read_bytes()
    read = 0
    for round_number in range(ROUNDS):
        changed = json.dumps(mutated_object(json.loads(valid), rng)).encode()
        file.write_bytes(changed if round_number % 2 else mutated_bytes(valid, rng))
        read += survives(lambda: read_checkpoint(str(place)))
    assert 0 < read < ROUNDS


@pytest.mark.parametrize("which", ["target", "draft"])
def test_whole_diagnosis_of_configs_with_nasty_values(tmp_path: Path, which: str) -> None:
    """Every rule and both outputs, on configs that parse but hold nonsense."""
    from sglang_eagle3_probe.cli.doctor import rules

    rng = seeded(which)
    places = {"target": make.target(tmp_path / "t"), "draft": make.draft(tmp_path / "d")}
    file = places[which] / "config.json"
    valid = json.loads(file.read_text())
    valid.update(rope_scaling={"rope_type": "yarn", "factor": 4.0}, draft_vocab_size=4)
    for _ in range(ROUNDS // 2):
        changed = valid
        for _ in range(rng.randint(1, 4)):
            changed = mutated_object(changed, rng)
        file.write_text(json.dumps(changed))

        def judge() -> None:
            target, draft = (read_checkpoint(str(places[name])) for name in ("target", "draft"))
            situation = Situation(target, draft, rng.choice(["0.5.9", "0.5.14", "0.5.23"]), {})
            diagnosis = doctor.diagnose(situation, "test", rules())
            broken = [u.message for u in diagnosis.unknown if "rule itself failed" in u.message]
            assert not broken, (broken, file.read_text())
            json.loads(doctor.as_json(diagnosis, ids=True))
            for line in doctor.as_lines(diagnosis, 80, ids=True):
                assert line.text.isprintable()

        survives(judge)


def test_arguments() -> None:
    rng = seeded(6)
    valid = b"sglang serve --speculative-num-steps 3 --mem-fraction-static=0.8 --x '[1, 2]' --on"
    for _ in range(ROUNDS):
        text = mutated_bytes(valid, rng).decode("utf-8", "surrogateescape")
        survives(lambda text=text: parse_arguments(text))  # type: ignore[misc]


def test_token_files(tmp_path: Path) -> None:
    rng = seeded(7)
    file = tmp_path / "tokens"
    for valid in (b"1 2 3 4", b"[1, 2, [3, 4]]", b'{"input_ids": [1, 2]}\n{"input_ids": [3]}'):
        for _ in range(ROUNDS // 3):
            file.write_bytes(mutated_bytes(valid, rng))
            survives(lambda: count_tokens(str(file), str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("trainer_accuracy.json", {"trained_on_output_ids": [1, 2, 3], "trained_rope_theta": 1e4}),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8", "exclude_modules": []}}),
    ],
)
def test_files_beside_the_config(tmp_path: Path, name: str, valid: dict[str, Any]) -> None:
    """They may say more, and whatever is in them is no reason to stop."""
    rng = seeded(name)
    place = make.draft(tmp_path)
    for round_number in range(ROUNDS):
        changed = json.dumps(mutated_object(valid, rng)).encode()
        (place / name).write_bytes(changed if round_number % 2 else mutated_bytes(changed, rng))
        assert survives(lambda: read_checkpoint(str(place)))


def test_the_command_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any file and any argument broken: findings, or one line and exit code 2."""
    rng = seeded(9)
    target, draft = make.target(tmp_path / "t"), make.draft(tmp_path / "d")
    make.index(draft, dict.fromkeys(make.DRAFT_TENSORS, "model.safetensors"))
    tokens = tmp_path / "tokens"
    tokens.write_bytes(b"[1, 2, 3]")
    (draft / "trainer_accuracy.json").write_text('{"trained_on_output_ids": [1, 2, 3]}')
    files = [path for folder in (target, draft) for path in folder.iterdir()] + [tokens]
    valid = {path: path.read_bytes() for path in files}
    overrides = {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}, "num_hidden_layers": 2}
    codes = set()
    for _ in range(ROUNDS // 4):
        path = rng.choice(files)
        path.write_bytes(mutated_bytes(valid[path], rng))
        override = json.dumps(mutated_object(overrides, rng))
        words = f"--tp 2 --enable-probe --json-model-override-args '{override}'"
        if rng.random() < 0.3:
            words = mutated_bytes(words.encode(), rng).decode("utf-8", "replace")
        arguments = ["--target", str(target), "--draft", str(draft), "--tokens", str(tokens)]
        arguments += [f"--args={words}", "--explain-ids", *(["--json"] * rng.randrange(2))]
        arguments += ["--sglang-version", rng.choice(["0.5.9", "0.5.14", "0.5.23", "9.9"])]
        codes.add(main(["doctor", *arguments]))
        shown = capsys.readouterr()
        assert len(shown.err.splitlines()) <= 1
        assert "rule itself failed" not in shown.out
        path.write_bytes(valid[path])
    assert {1, 2} <= codes
