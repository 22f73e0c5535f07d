"""The HTML report in a real browser: no request, no error, readable, and usable with keys alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.report import html_samples as made

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
RUNS = ("rich", "miswired", "bare", "large", "hostile", "several")


def chromium() -> str | None:
    """A browser that runs; Ubuntu's ``chromium`` may be a stub that asks for snap."""
    for name in (os.environ.get("EAGLE3_PROBE_CHROMIUM", ""), *NAMES):
        path = shutil.which(name) if name else None
        if path and not subprocess.run([path, "--version"], capture_output=True).returncode:
            return path
    return None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        pytest.skip(
            "no chromium on this machine. Fix: apt-get install chromium, or name one in "
            "EAGLE3_PROBE_CHROMIUM"
        )
    # Chromium's sandbox refuses root, which is what containers run as.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file per kind of run."""
    folder = tmp_path_factory.mktemp("pages")
    result = {}
    for name in RUNS[:-1]:
        report = getattr(made, name)(folder / name)
        result[name] = folder / f"{name}.html"
        result[name].write_text(made.page_of((name, report)), encoding="utf-8")
    reports = [(name, getattr(made, name)(folder / f"again-{name}")) for name in RUNS[:3]]
    result["several"] = folder / "several.html"
    result["several"].write_text(made.page_of(*reports), encoding="utf-8")
    return result


class Watched:
    """A tab that remembers what went over the wire and what was complained about."""

    def __init__(self, browser: Any, page: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append("dialog"))
        self.tab.goto(page.as_uri())

    def __enter__(self) -> Any:
        return self.tab

    def __exit__(self, *_: object) -> None:
        self.context.close()


def size(width: int) -> dict[str, int]:
    return {"width": width, "height": 900}


OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"


@pytest.mark.parametrize("name", RUNS)
def test_it_asks_nobody_and_complains_of_nothing(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    watched = Watched(browser, pages[name], viewport=size(1400))
    with watched as tab:
        tab.evaluate(OPEN_ALL)
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        tab.wait_for_timeout(100)
        asked = [url for url in watched.requests if not url.startswith("data:")]
        assert asked == [pages[name].as_uri()]
        assert watched.complaints == []


def test_the_policy_is_in_force(browser: Any, pages: dict[str, Path]) -> None:
    """The test above would see a request: one that a page makes is stopped and complained of."""
    watched = Watched(browser, pages["rich"], viewport=size(1400))
    with watched as tab:
        tab.evaluate(
            "() => { const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; "
            "document.body.append(i); }"
        )
        tab.wait_for_timeout(200)
        assert any("Content Security Policy" in text for text in watched.complaints)


@pytest.mark.parametrize("width", [1400, 400])
def test_every_figure_is_there_to_see(browser: Any, pages: dict[str, Path], width: int) -> None:
    with Watched(browser, pages["rich"], viewport=size(width)) as tab:
        seen = tab.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll('figure')].map(f => [
              f.dataset.figure,
              [...f.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height > 40)
                .length]))"""
        )
    assert set(made.FIGURES) <= set(seen)
    assert seen.pop("values") == 13
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_click_and_a_key_open_a_finding(
    browser: Any, pages: dict[str, Path], script: bool
) -> None:
    options = {"viewport": size(1400), "java_script_enabled": script}
    with Watched(browser, pages["rich"], **options) as tab:
        findings = tab.locator("details.finding")
        second, third = findings.nth(1), findings.nth(2)
        assert not second.locator(".inside").is_visible()
        second.locator("summary").click()
        assert second.locator(".inside").is_visible()
        third.locator("summary").focus()
        tab.keyboard.press("Enter")
        assert third.locator(".inside").is_visible()
        tab.keyboard.press("Enter")
        assert not third.locator(".inside").is_visible()


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_the_list_on_top_leads_to_the_finding(
    browser: Any, pages: dict[str, Path], script: bool
) -> None:
    options = {"viewport": size(1400), "java_script_enabled": script}
    with Watched(browser, pages["rich"], **options) as tab:
        tab.locator(".top a").nth(2).focus()
        tab.keyboard.press("Enter")
        tab.locator("#finding-3").wait_for(state="visible", timeout=3000)


def test_the_tab_key_reaches_the_skip_link_first_and_shows_where_it_is(
    browser: Any, pages: dict[str, Path]
) -> None:
    with Watched(browser, pages["rich"], viewport=size(1400)) as tab:
        tab.keyboard.press("Tab")
        focus = "getComputedStyle(document.activeElement)"
        assert tab.evaluate("document.activeElement.className") == "skip"
        assert tab.evaluate("document.activeElement.getBoundingClientRect().left") > 0
        assert tab.evaluate(f"{focus}.outlineStyle") == "solid"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "content"


@pytest.mark.parametrize("width", [1400, 1100, 820, 400, 320])
@pytest.mark.parametrize("name", RUNS)
def test_nothing_runs_over_the_side(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    with Watched(browser, pages[name], viewport=size(width)) as tab:
        tab.evaluate(OPEN_ALL)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent,
      t.getBoundingClientRect()]);
    const where = svg.closest('figure').dataset.figure;
    texts.forEach(([a, r], i) => {
      if (r.left < frame.left - 2 || r.right > frame.right + 2) found.push(`${where}: out: ${a}`);
      for (const [b, s] of texts.slice(i + 1)) {
        const x = Math.min(r.right, s.right) - Math.max(r.left, s.left);
        const y = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
        if (x > 2 && y > 4) found.push(`${where}: ${a} / ${b}`);
      }
    });
  }
  return found;
}"""


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("name", ["rich", "miswired", "large"])
def test_words_in_drawings_neither_touch_nor_leave(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    with Watched(browser, pages[name], viewport=size(width)) as tab:
        assert tab.evaluate(OVERLAPS) == []


CONTRAST = """() => {
  const rgba = text => {
    const n = (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
    return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
  };
  const over = (top, below) => top[3] >= 1 ? top :
    [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = c => {
    const [r, g, b] = c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 :
      ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + .05) / (y + .05);
  };
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement)
      layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, top) => top[3] ? over(top, below) : below,
      [255, 255, 255, 1]);
  };
  const inDrawing = text => {
    let paint = behind(text.closest('svg').parentElement);
    const r = text.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2;
    for (const shape of text.parentElement.children) {
      if (shape === text) break;
      const s = shape.getBoundingClientRect();
      if (shape.tagName === 'rect' && s.left <= x && x <= s.right && s.top <= y && y <= s.bottom) {
        const style = getComputedStyle(shape), fill = rgba(style.fill);
        paint = over([fill[0], fill[1], fill[2], fill[3] * style.fillOpacity], paint);
      }
    }
    return paint;
  };
  const weak = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || ['STYLE', 'SCRIPT'].includes(e.tagName)) continue;
    if (!e.getClientRects().length || e.closest('.unseen')) continue;
    const drawn = e.tagName === 'text', style = getComputedStyle(e);
    const ink = rgba(drawn ? style.fill : style.color);
    const ground = drawn ? inDrawing(e) : behind(e);
    const found = ratio(over(ink, ground), ground);
    count += 1;
    if (found < 4.5) weak.push(`${found.toFixed(2)} ${e.className.baseVal ?? e.className}: ` +
      node.data.trim().slice(0, 40));
  }
  return [count, weak];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["rich", "miswired", "large", "bare"])
def test_every_word_stands_out_from_what_is_behind_it(
    browser: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    options = {"viewport": size(1400), "color_scheme": scheme}
    with Watched(browser, pages[name], **options) as tab:
        tab.evaluate(OPEN_ALL)
        count, weak = tab.evaluate(CONTRAST)
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert count > 60
    assert weak == []
    assert ("251" in paper) == (scheme == "light")


def test_paper_shows_what_is_folded_up(browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages["rich"], viewport=size(718), java_script_enabled=True) as tab:
        tab.emulate_media(media="print")
        hidden = (
            "[...document.querySelectorAll('details .scroll')].filter("
            "s => !s.checkVisibility({contentVisibilityAuto: true})).length"
        )
        assert tab.evaluate("document.querySelectorAll('details:not([open])').length") > 10
        assert tab.evaluate(hidden) == 0
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert tab.evaluate("document.querySelectorAll('details:not([open])').length") == 0
        assert not tab.locator("nav").is_visible()
        tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert tab.evaluate("document.querySelectorAll('details:not([open])').length") > 10
        assert tab.evaluate("document.documentElement.scrollWidth") <= 718


def test_a_screen_reader_hears_the_parts(browser: Any, pages: dict[str, Path]) -> None:
    with Watched(browser, pages["rich"], viewport=size(1400)) as tab:
        for role in ("main", "navigation", "banner", "contentinfo"):
            assert tab.get_by_role(role).count() == 1, role
        assert tab.get_by_role("heading", level=1).count() == 1
        pictures = tab.get_by_role("img")
        assert pictures.count() > 8
        heard = tab.get_by_role("img", name="not what the draft was trained on")
        assert (
            heard.count()
            + tab.get_by_role("img", name="every slot is what the draft was trained on").count()
            == 1
        )
        assert tab.get_by_role("table", name="Draft forwards").count() == 1
