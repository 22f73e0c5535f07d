"""doctor as a user meets it: in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.checkpoint import checkpoint_files as make
from unit.checkpoint.natural_targets import target_config

from sglang_eagle3_probe.checkpoint.facts import CheckpointFacts, Situation
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.cli.doctor import rules
from sglang_eagle3_probe.report import doctor, lines
from sglang_eagle3_probe.rules.base import Finding, Page, Result, Seen, Unknown

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "doctor.schema.json").read_text(encoding="utf-8"))
MEASURED = ROOT / "docs" / "measurements" / "doctor.md"
CONFIGS = ROOT.parent / "shared" / "data" / "draft_configs.jsonl"


def run(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "sglang_eagle3_probe.cli.main", "doctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **changes},
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def pair(folder: Path, **draft: Any) -> list[str]:
    target, made = make.target(folder / "target"), make.draft(folder / "draft", **draft)
    return ["--target", str(target), "--draft", str(made), "--sglang-version", "0.5.23"]


def fits(value: Any, schema: dict[str, Any], where: str = "") -> None:
    """As much of JSON Schema as the file uses."""
    if "$ref" in schema:
        fits(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], where)
    for part in schema.get("allOf", ()):
        fits(value, part, where)
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}
    kinds["boolean"] = bool
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert isinstance(value, tuple(kinds[name] for name in named)), (where, value)
    if isinstance(value, dict):
        assert not set(schema.get("required", ())) - set(value), where
        known = schema.get("properties", {})
        if schema.get("additionalProperties", True) is False:
            assert set(value) <= set(known), (where, set(value) - set(known))
        for key in set(value) & set(known):
            fits(value[key], known[key], f"{where}.{key}")
    if isinstance(value, list):
        for entry in value:
            fits(entry, schema.get("items", {}), f"{where}[]")


# -- the command --------------------------------------------------------------------------------


def test_text_names_both_sides_and_what_was_not_checked(tmp_path: Path) -> None:
    done = run(*pair(tmp_path))
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    assert "LlamaForCausalLM, 32 layers" in " ".join(done.stdout.split())
    assert "Not checked" in done.stdout
    assert "--enable-probe" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_json_is_deterministic_and_fits_the_schema(tmp_path: Path) -> None:
    arguments = [*pair(tmp_path), "--json", "--explain-ids", "--args=--tp 2 --x nan"]
    first, second = (run(*arguments, PYTHONHASHSEED=seed).stdout for seed in ("1", "2"))
    assert first == second
    found = json.loads(first)
    fits(found, SCHEMA)
    assert found["arguments"] == {"tp_size": 2, "x": "nan"}
    assert found["layer_ids"]["in_force"]["captured"] == [2, 16, 29]
    assert found["summary"]["exit_code"] == run(*arguments).returncode


def test_layer_ids_in_every_unit(tmp_path: Path) -> None:
    block = {"eagle_aux_hidden_state_layer_ids": [-1, 2, 30]}
    done = run(*pair(tmp_path, eagle_config=block), "--explain-ids")
    assert "0 (embedding)" in done.stdout
    assert "boundaries [0, 3, 31]" in done.stdout
    assert '"eagle_aux_hidden_state_layer_ids": [-1, 2, 30]' in done.stdout
    old = run(*pair(tmp_path, eagle_config=block)[:-1], "0.5.21", "--explain-ids")
    assert "0 (crash)" in old.stdout


def test_other_engines_have_their_own_lists(tmp_path: Path) -> None:
    block = {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}
    done = run(*pair(tmp_path, eagle_config=block), "--explain-ids")
    assert 'vLLM:   "eagle_aux_hidden_state_layer_ids": [2, 16, 29]' in done.stdout
    assert "eagle3_layers_to_capture: [1, 15, 28]" in done.stdout


def test_both_units_are_shown_when_the_list_does_not_tell(tmp_path: Path) -> None:
    block = {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}
    done = run(*pair(tmp_path, eagle_config=block), "--explain-ids")
    assert "If the list holds output ids:" in done.stdout
    assert "If the list holds boundaries:" in done.stdout
    assert "infer-layers" in done.stdout


def imported(tmp_path: Path, *names: str) -> list[str]:
    """Which of these modules a whole run imports."""
    code = (
        "import sys; from sglang_eagle3_probe.cli.main import main; main(sys.argv[2:]);"
        "print('IMPORTED', *sorted(set(sys.argv[1].split()) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(names), "doctor", *pair(tmp_path), "--explain-ids"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=True,
    )
    return done.stderr.split()[1:]


def test_neither_torch_nor_sglang_is_imported(tmp_path: Path) -> None:
    assert not imported(tmp_path, "torch", "sglang", "numpy", "transformers", "safetensors")


def test_packaging_is_not_needed(tmp_path: Path) -> None:
    """It is no dependency of this package; where SGLang is absent it may be, too."""
    assert not imported(tmp_path, "packaging")


def test_without_rich(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('no rich')")
    done = run(*pair(tmp_path), PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert "Not checked" in done.stdout


def test_fast_enough(tmp_path: Path) -> None:
    """By the processor's time: other work on the machine is not doctor's."""
    arguments = pair(tmp_path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_on_a_terminal_unless_told_not_to(tmp_path: Path, no_color: str) -> None:
    pytest.importorskip("rich")
    ours, theirs = os.openpty()
    started = subprocess.Popen(
        [sys.executable, "-m", "sglang_eagle3_probe.cli.main", "doctor", *pair(tmp_path)],
        stdout=theirs,
        env={
            **{k: v for k, v in os.environ.items() if k != "NO_COLOR"},
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
            **({"NO_COLOR": no_color} if no_color else {}),
        },
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # Linux says EIO at the end
        pass
    os.close(ours)
    assert started.wait(60) in (0, 1)
    assert b"Not checked" in shown
    assert (b"\x1b[" in shown) == (not no_color)


def test_list_and_explain() -> None:
    listed = run("--list")
    assert listed.returncode == 0
    for rule in rules():
        assert f"{rule.code}  {rule.title}" in listed.stdout
    for code in (*(rule.code for rule in rules()[:1]), "e3p101"):
        page = run("--explain", code)
        assert page.returncode == 0
        assert "How to fix" in page.stdout
    assert run("--explain", "E3P000").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--target and --draft missing"),
        (["--target", "x"], "--draft missing"),
        (["--target", "x", "--draft", "y"], "does not exist"),
        (["--target", "x", "--draft", "y", "--sglang-version", "main"], "no SGLang release"),
        (["--target", "x", "--draft", "y", "--args='"], "--args cannot be split"),
    ],
)
def test_could_not_run(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = run(*arguments, HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_token_file_gets_its_answer(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("1 2 5 9 9 9")
    arguments = pair(tmp_path)
    assert "covers 100.0% of the 6 tokens" in run(*arguments, "--tokens", tokens).stdout
    (tmp_path / "draft" / "model.safetensors").unlink()
    assert "its map was not found" in run(*arguments, "--tokens", tokens).stdout


def test_a_swapped_pair_is_said_so(tmp_path: Path) -> None:
    target, draft = make.target(tmp_path / "target"), make.draft(tmp_path / "draft")
    done = run("--target", draft, "--draft", target)
    assert done.returncode == 2
    assert "the other way round" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# -- an SGLang whose source was patched ---------------------------------------------------------


def deepseek(folder: Path, ids: list[int]) -> list[str]:
    """A DeepSeek target and a draft with these ids; the release is left open."""
    target = make.target(folder / "target", architectures=["DeepseekV3ForCausalLM"])
    block = {"eagle_aux_hidden_state_layer_ids": ids}
    draft = make.draft(folder / "draft", eagle_config=block)
    return ["--target", str(target), "--draft", str(draft), "--json", "--explain-ids"]


def found_by(*arguments: str, **changes: str) -> tuple[dict[str, Any], set[str]]:
    found = json.loads(run(*arguments, **changes).stdout)
    fits(found, SCHEMA)
    return found, {finding["code"] for finding in found["findings"]}


def test_patched_source_reads_the_embedding_and_keeps_the_order(tmp_path: Path) -> None:
    arguments = [*deepseek(tmp_path, [5, -1, 2]), "--sglang-version", "0.5.23"]
    stock, codes = found_by(*arguments)
    assert {"E3P115", "E3P114"} <= codes
    assert not stock["sglang"]["source_patched"]
    assert stock["layer_ids"]["in_force"]["captured"] == [2, 5]
    fixes = {finding["code"]: finding["fix"] for finding in stock["findings"]}
    assert "patch-source" in fixes["E3P115"]
    patched, codes = found_by(*arguments, "--patched-source")
    assert not {"E3P115", "E3P114"} & codes
    assert patched["sglang"]["source_patched"]
    assert patched["layer_ids"]["in_force"]["captured"] == [6, 0, 3]
    reading = patched["layer_ids"]["readings"][0]
    assert reading["sglang"] == [5, -1, 2]
    assert reading["tensorrt_llm"] is None
    probed, codes = found_by(*arguments, "--args=--enable-probe")
    assert not {"E3P115", "E3P114"} & codes
    assert probed["layer_ids"]["in_force"]["captured"] == [6, 0, 3]


def test_the_list_for_a_released_sglang_is_named_where_there_is_one(tmp_path: Path) -> None:
    arguments = deepseek(tmp_path, [-1, 2, 5])
    fixes = {}
    for release in ("0.5.13", "0.5.23"):
        found, _ = found_by(*arguments, "--sglang-version", release)
        fixes[release] = next(f["fix"] for f in found["findings"] if f["code"] == "E3P115")
    assert "[0, 3, 6]" in fixes["0.5.23"]
    assert "[0, 3, 6]" not in fixes["0.5.13"], "boundary 0 is a TypeError there"


def test_an_installed_sglang_is_looked_at(tmp_path: Path) -> None:
    """A copy of the files that are patched, put before the installed package on the path."""
    from sglang_eagle3_probe.source_patches.applying import bring
    from sglang_eagle3_probe.source_patches.series import SourcePatchError, load
    from sglang_eagle3_probe.source_patches.tree import find

    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no SGLang here")
    try:
        tree = find(Path(next(iter(spec.submodule_search_locations))))
        series = load(tree.release)
    except SourcePatchError as error:
        pytest.skip(str(error))
    site = tmp_path / "site"
    for file in (*series.pristine, "sglang/__init__.py", "sglang/_version.py"):
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_bytes((tree.root / file).read_bytes())
    arguments = deepseek(tmp_path, [-1, 2, 5])
    path = f"{site}{os.pathsep}{ROOT}"
    assert not found_by(*arguments, PYTHONPATH=path)[0]["sglang"]["source_patched"]
    bring(find(site), series, "patched")
    found, codes = found_by(*arguments, PYTHONPATH=path)
    assert found["sglang"]["source_patched"]
    assert found["sglang"]["from"] == "the installed one"
    assert "E3P115" not in codes


def test_hostile_text_does_not_steer_the_terminal(tmp_path: Path) -> None:
    arguments = pair(tmp_path, architectures=["\x1b[2J\nLlama\u202e"], model_type="\ud800")
    done = run(*arguments, "--explain-ids")
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    fits(json.loads(run(*arguments, "--json").stdout), SCHEMA)


# -- output -------------------------------------------------------------------------------------


class Stub:
    """A rule that says what it is told to."""

    code, title = "E3P999", "a rule of the tests"
    page = Page("checks", "Because `fc` sees other states.\n\nMore.", "", "", "")

    def __init__(self, *results: Result, error: Exception | None = None) -> None:
        self.results, self.error = list(results), error

    def check(self, situation: Situation, /) -> list[Result]:
        if self.error is not None:
            raise self.error
        return self.results


def stub_finding(severity: Any, value: Any = None) -> Finding:
    seen = Seen("list", value, "draft config.json: eagle_config")
    return Finding("E3P999", severity, "title", f"{severity} message", (seen,), "write [1, 2, 3]")


def judged(tmp_path: Path, *stubs: Stub) -> doctor.Diagnosis:
    target, draft = make.target(tmp_path / "t"), make.draft(tmp_path / "d")
    facts = [read_checkpoint(str(place)) for place in (target, draft)]
    return doctor.diagnose(Situation(facts[0], facts[1], "0.5.23", {}), "as asked", stubs)


def test_findings_say_what_where_why_and_fix(tmp_path: Path) -> None:
    found = judged(tmp_path, Stub(stub_finding("note"), stub_finding("error", list(range(40)))))
    assert found.exit_code == 1
    text = "\n".join(line.text for line in doctor.as_lines(found, 100))
    assert text.index("error[E3P999]") < text.index("note[E3P999]")
    assert "--> draft config.json: eagle_config" in text
    assert "... 30 more]" in text
    assert "= why: Because fc sees other states." in text
    assert "More." not in text
    assert "= fix: write [1, 2, 3]" in text
    assert "1 error, 1 note by 1 rules" in text


def test_notes_and_open_questions_leave_it_clean(tmp_path: Path) -> None:
    asked = Unknown("E3P999", "title", "cannot tell", "run it")
    found = judged(tmp_path, Stub(stub_finding("note"), asked))
    assert found.exit_code == 0
    text = "\n".join(line.text for line in doctor.as_lines(found, 60))
    assert "unknown[E3P999]: cannot tell" in text
    assert "no fault found, 1 note, 1 not decided" in text


def test_a_broken_rule_does_not_hide_the_others(tmp_path: Path) -> None:
    found = judged(tmp_path, Stub(error=KeyError("x")), Stub(stub_finding("warning")))
    assert [f.severity for f in found.findings] == ["warning"]
    assert "KeyError" in found.unknown[0].message


def test_values_that_json_cannot_hold(tmp_path: Path) -> None:
    value = {"a": float("nan"), "b": (1, {2}), "c": Path("x"), 3: None}
    found = judged(tmp_path, Stub(stub_finding("error", value)))
    shown = json.loads(doctor.as_json(found))["findings"][0]["evidence"][0]["value"]
    assert shown == {"a": "nan", "b": [1, [2]], "c": "x", "3": None}


def test_lines_wrap_and_stay_clean() -> None:
    made = lines.wrapped("  = fix: ", "word " * 40, 40)
    assert all(len(line.text) <= 40 for line in made)
    assert made[1].text.startswith(" " * 9)
    assert lines.wrapped("  - ", "", 40)[0].text == "  -"
    assert lines.clean("a\x1b[1mb\nc") == "a?[1mb c"


# -- real configs -------------------------------------------------------------------------------


@pytest.mark.skipif(not CONFIGS.is_file(), reason="the collected configs are not here")
@pytest.mark.parametrize("sglang", ["0.5.9", "0.5.13", "0.5.23"])
def test_every_collected_config_can_be_judged(tmp_path: Path, sglang: str) -> None:
    target = read_checkpoint(str(make.target(tmp_path)))
    for number, row in enumerate(CONFIGS.read_text(encoding="utf-8").splitlines()):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(json.loads(row)["config"]))
        situation = Situation(target, read_checkpoint(str(file)), sglang, {})
        found = doctor.diagnose(situation, "as asked", rules())
        assert not [u for u in found.unknown if "rule itself failed" in u.message]
        fits(json.loads(doctor.as_json(found, ids=True)), SCHEMA)
        assert doctor.as_lines(found, 100, ids=True)


@pytest.mark.skipif(not CONFIGS.is_file(), reason="the collected configs are not here")
def test_findings_on_natural_targets_are_those_judged_by_hand() -> None:
    """Each error, warning and open question on a public config has a verdict in
    docs/measurements/doctor.md, and each verdict there is of one that is still said."""
    judged_rows = {
        tuple(cell.strip() for cell in line.split("|")[1:4])
        for line in MEASURED.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    }
    known = {(name.rsplit(" (", 1)[0], code, severity) for name, code, severity, *_ in judged_rows}
    said = set()
    for row in map(json.loads, CONFIGS.read_text(encoding="utf-8").splitlines()):
        target = CheckpointFacts("target", target_config(row["name"]), None)
        draft = CheckpointFacts("draft", row["config"], None)
        found = doctor.diagnose(Situation(target, draft, "0.5.23", {}), "as asked", rules())
        name = row["name"].split(" (")[0]
        said |= {(name, f.code, f.severity) for f in found.findings if f.severity != "note"}
        said |= {(name, asked.code, "unknown") for asked in found.unknown}
    assert said == {row for row in known if row[2] in ("error", "warning", "unknown")}
