"""The HTML report: what stands where, that nothing escapes, that nothing is silently missing."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from unit.report import html_samples as made
from unit.trace import samples

from sglang_eagle3_probe.report.verdict import build, sentence
from sglang_eagle3_probe.rules.evidence import read_evidence

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Document(HTMLParser):
    """Tags, ids and text; fails on tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.headings: list[int] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        assert len(values) == len(attrs), f"an attribute twice: {attrs}"
        self.tags.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def attributes(self, name: str) -> list[str]:
        return [values[name] for _, values in self.tags if name in values]


@pytest.mark.parametrize(
    "run", [made.rich, made.miswired, made.bare, made.large, made.hostile], ids=lambda f: f.__name__
)
def test_a_page_is_sound(tmp_path: Path, run: object) -> None:
    report = run(tmp_path)  # type: ignore[operator]
    text = made.page_of(("run", report))
    page = Document(text)
    assert len(page.ids) == len(set(page.ids))
    for name in page.attributes("aria-labelledby"):
        assert name in page.ids
    links = [link for link in page.attributes("href") if link != "data:,"]
    assert links
    for link in links:
        assert link[0] == "#"
        assert link[1:] in page.ids
    assert not page.attributes("src")
    assert not page.attributes("style")
    assert not [key for _, values in page.tags for key in values if key.startswith("on")]
    assert "@import" not in text
    assert "url(" not in text
    # Headings go down by one level at a time, so that screen readers can jump through them.
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    pairs = zip(page.headings, page.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in pairs)
    assert not re.search(r'"(nan|inf|-inf)"|NaN[0-9 ]*"', text)


def test_the_policy_lets_nothing_in_but_the_pages_own_script(tmp_path: Path) -> None:
    text = made.page_of(("run", made.miswired(tmp_path)))
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "http" not in policy


@pytest.mark.parametrize("run", [made.rich, made.miswired, made.bare], ids=lambda f: f.__name__)
def test_every_figure_is_drawn_or_says_what_would_bring_it(tmp_path: Path, run: object) -> None:
    report = run(tmp_path)  # type: ignore[operator]
    text = made.page_of(("run", report))
    drawn = set(re.findall(r'<figure class="[a-z]+" data-figure="([^"]+)"', text))
    absent = dict(
        re.findall(r'<div class="absent" data-figure="([^"]+)">.*?missing">([^<]+)<', text, re.S)
    )
    assert set(made.FIGURES) <= drawn | set(absent)
    assert not drawn & set(absent)
    assert all(len(why) > 40 for why in absent.values())
    if run is made.rich:
        assert not absent
        assert {"slice-context_length", "slice-batch_size", "slice-verification"} <= drawn
    elif run is made.miswired:
        assert set(absent) == {"anatomy", "values", "cost", "speed"}
        assert "SGLANG_EAGLE3_PROBE_LEVEL=stats" in absent["anatomy"]
        assert "--predicted trainer_accuracy.json" in text
    else:
        assert set(absent) == set(made.FIGURES)


def test_each_drawing_has_its_numbers_as_a_table(tmp_path: Path) -> None:
    text = made.page_of(("run", made.rich(tmp_path)))
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert len(figures) > 10
    for figure in figures:
        assert figure.count("<table>") == 1
        assert "<tbody>\n  <tr>" in figure
        assert 'role="img"' in figure


def test_the_verdict_comes_first_then_findings_then_the_fix(tmp_path: Path) -> None:
    report = made.rich(tmp_path)
    words = Document(made.page_of(("run", report))).words
    found = [f.code for f in report.findings]
    assert len(found) > 3
    wanted = [sentence(report), *found[:3], f"{len(found) - 3} more below", "Fix first:"]
    wanted += [report.findings[0].fix, *found, "Wiring (scheduler tp0)", "The probe itself"]
    place = 0
    for text in wanted:
        place = words.index(text, place)


def test_numbers_are_those_of_the_report(tmp_path: Path) -> None:
    report = made.rich(tmp_path)
    words = Document(made.page_of(("run", report))).words
    seen = report.evidence.acceptance
    assert f"accept length {seen.accept_length:.2f} [" in words
    for rate in seen.unconditional:
        assert f"{rate.share:.3f} [{rate.interval.low:.3f}, {rate.interval.high:.3f}]" in words
    causes = [s for s in report.evidence.understood.anatomy.total if s.cause != "unknown"]
    worst = max(causes, key=lambda share: share.count)
    assert f"takes most: {worst.share:.0%} of {worst.refused} refusals" in words
    main = report.evidence.understood.economics.main
    assert main is not None
    assert f"speed-up {main.speed_up:.2f} [" in words
    assert "Crosses mark NaN or infinite values: decode1_hidden slot 0." in words


def test_without_plain_speed_it_says_how_to_learn_it(tmp_path: Path) -> None:
    made.rich(tmp_path)
    words = Document(made.page_of(("run", build(read_evidence(tmp_path))))).words
    assert "What plain decoding gives is not known." in words
    assert "add --plain TOKENS_PER_S" in words


def test_trained_against_served_is_in_the_wirings_table(tmp_path: Path) -> None:
    page = Document(made.page_of(("run", made.miswired(tmp_path))))
    assert page.words.count("DIFFERS") == 3
    assert "3 of 3 slots are not what the draft was trained on" in page.words
    assert "slot 1 gets h 6" in page.words


def test_what_strangers_write_stays_text(tmp_path: Path) -> None:
    report = made.hostile(tmp_path)
    text = made.page_of((made.HOSTILE, report), ("b", made.bare(tmp_path / "b")))
    page = Document(text)
    tags = {tag for tag, _ in page.tags}
    assert "img" not in tags
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "\u202e" not in text
    assert "49" not in re.findall(r"\{\{7\*7\}\}|(?<=\?)49", text)
    shown = made.HOSTILE.replace("\u202e", "?")
    assert page.words.count(shown) > 12


def test_several_runs_have_a_comparison_on_top_and_ids_of_their_own(tmp_path: Path) -> None:
    first, second = made.miswired(tmp_path / "a"), made.rich(tmp_path / "b")
    page = Document(made.page_of(("stock", first), ("probe", second)))
    assert len(page.ids) == len(set(page.ids))
    assert {"comparison", "run1-verdict", "run2-verdict", "run2-finding-1"} <= set(page.ids)
    words = page.words
    assert words.index("2 runs compared") < words.index(sentence(first))
    assert words.index(sentence(first)) < words.index(sentence(second))
    shortest = first.evidence.acceptance.accept_length
    assert f"Accept length from {shortest:.2f} (stock) to" in words
    assert page.headings.count(1) == 1


def test_same_trace_same_bytes(tmp_path: Path) -> None:
    assert made.page_of(("r", made.rich(tmp_path))) == made.page_of(("r", made.rich(tmp_path)))


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    asked = {f"argument_{n}": n for n in range(500)}
    records = samples.replace(samples.clean(), samples.arguments(asked=asked))
    samples.write(tmp_path, records)
    text = made.page_of(("run", build(read_evidence(tmp_path))))
    assert "300 more rows are in --json." in text


def test_templates_travel_with_the_package() -> None:
    folder = resources.files("sglang_eagle3_probe.report.html") / "templates"
    assert {"page.html", "run.html", "parts.html", "page.css", "page.js"} <= {
        entry.name for entry in folder.iterdir()
    }
