"""The written pages in a real browser: nothing runs, nothing leaves, and they can be read, used and printed by anyone.

The audit has every state there is, and hostile text wherever third-party text is shown.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.browser import chromium
from tests.end_to_end.conftest import needed
from tests.reporting.page import written
from tests.reporting.page_figures.sample_runs import followed
from tests.reporting.runs import HOSTILE
from tests.reporting.sample_reports import full_report, small_report

pytestmark = [pytest.mark.long, pytest.mark.browser]  # chromium and pages with pictures

PHONE, LAPTOP = {"width": 380, "height": 800}, {"width": 1400, "height": 1000}
SCREEN = {"width": 1280, "height": 800}
INDEX, FORM = "full/index.html", "full/forms/fa-*.html"
# the other pages come from the same two templates
MORE = ("full/forms/drtp-*.html", "small/index.html", "small/forms/dfa-*.html")
PAGES = [INDEX, FORM, *MORE]
UNFOLD = "() => document.querySelectorAll('details').forEach(one => one.open = true)"
# Everything that Tab must reach as the page is shown first: what is folded away is not there yet.
REACHABLE = """() => [...document.querySelectorAll('a[href], summary, [tabindex="0"], input:checked')]
    .filter(one => one.checkVisibility({contentVisibilityAuto: true}))"""
FOCUSED = f"""() => {{
    const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
    return {{
        place: ({REACHABLE})().indexOf(one),
        ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        seen: box.width > 0 && box.right > 0 && box.bottom > 0 && box.top < innerHeight && box.left < innerWidth,
    }} }}"""
# What scrolls sideways, and the browser lets no key reach.
UNREACHED = """() => [...document.querySelectorAll('body *')]
    .filter(one => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
    .filter(one => one.scrollWidth > one.clientWidth && one.tabIndex < 0).map(one => one.outerHTML.slice(0, 80))"""
# What would be cut on paper, which has no scroll bars.
BOXED = """() => [...document.querySelectorAll('.scroll, pre')]
    .filter(one => getComputedStyle(one).overflow !== 'visible').map(one => one.outerHTML.slice(0, 80))"""
# What sticks out of the page: inside a box that scrolls it may.
STICKING_OUT = """() => [...document.querySelectorAll('body *')]
    .filter(one => !one.closest('.scroll, pre, .skip') && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """full/ and small/: the audits of tests/reporting/sample_reports.py."""
    made = tmp_path_factory.mktemp("pages")
    for name, report in (("full", followed(full_report())), ("small", small_report())):
        written(report, made / name, drawn=True)
    return made


@pytest.fixture
def opened(browser, folder):
    """opened(pattern of a page's name, …options of playwright's new_page) → the loaded page."""
    pages = []

    def open_page(name: str, **options):
        (path,) = folder.glob(name)
        page = browser.new_page(**{"viewport": LAPTOP, **options})
        pages.append(page)
        page.goto(path.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", PHONE), ("dark", LAPTOP)], ids=["light phone", "dark laptop"]
)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(opened, name, scheme, viewport):
    page = opened(name, color_scheme=scheme, viewport=viewport)
    page.evaluate(UNFOLD)
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    assert [(one["id"], node["target"], node["failureSummary"]) for one in found for node in one["nodes"]] == []


def test_the_audit_table_fits_on_a_screen(opened):
    """Also beside a scroll bar of 15 px."""
    page = opened("small/index.html", viewport={**SCREEN, "width": SCREEN["width"] - 15})
    assert page.evaluate(
        "(table => table.offsetWidth <= table.parentElement.clientWidth)(document.querySelector('table.audit'))"
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(opened, name):
    page = opened(name)
    count = len(page.evaluate_handle(REACHABLE).get_properties())
    visited = []
    for _ in range(count):
        page.keyboard.press("Tab")
        visited.append(page.evaluate(FOCUSED))
    assert [stop["place"] for stop in visited] == list(range(count))
    assert [stop["place"] for stop in visited if not (stop["ring"] and stop["seen"])] == []


def test_the_skip_link_leads_past_the_head(opened):
    page = opened(INDEX)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Audit table")


def test_enter_unfolds_a_finding(opened):
    page = opened(INDEX)
    first = page.locator(".brief details").first
    sentence = first.locator(".sentence").first
    assert not sentence.is_visible()
    first.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert sentence.is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_no_page_sideways_and_every_wide_box_by_key(opened, name):
    page = opened(name, viewport=PHONE)
    page.evaluate(UNFOLD)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate(UNREACHED) == []


def test_on_a_phone_the_method_stays_while_the_audit_table_scrolls(opened):
    page = opened(INDEX, viewport=PHONE)
    box = page.locator(".scroll.tall").first
    method = box.locator("tbody th").first
    before = method.bounding_box()["x"]
    box.evaluate("one => one.scrollLeft = 200")
    assert box.evaluate("one => one.scrollLeft") == 200
    assert method.bounding_box()["x"] == pytest.approx(before, abs=2)


@pytest.mark.parametrize("name", ["full/forms/bp-*.html", FORM, "full/forms/drtp-*.html", "small/forms/dfa-*.html"])
def test_a_form_is_read_in_six_screens_and_answers_in_the_first(opened, name):
    """bp passes, fa fails, drtp and the older dfa are incomplete: the rest is folded, and what may be claimed is on top."""
    page = opened(name, viewport=SCREEN)
    assert page.evaluate("document.documentElement.scrollHeight") <= 6 * SCREEN["height"]
    answers = page.locator(".answer, .answers .value").all()
    assert answers and max(one.bounding_box()["y"] + one.bounding_box()["height"] for one in answers) <= 400
    page.evaluate(UNFOLD)
    assert page.evaluate("document.documentElement.scrollHeight") > 6 * SCREEN["height"]  # nothing is lost


def test_the_map_shows_the_chosen_method_and_seed_alone_by_mouse_and_key(opened):
    page = opened(INDEX)
    figure = page.locator(".map").first
    shown = figure.locator(".cells").first.locator("path:visible")
    methods, seeds = (figure.locator("fieldset").nth(place).locator("input") for place in (0, 1))
    methods.nth(0).check()
    first = shown.first.locator("title").text_content()
    methods.nth(1).check()
    second = shown.first.locator("title").text_content()
    methods.nth(1).press("ArrowRight")
    seeds.nth(1).check()
    third = shown.first.locator("title").text_content()
    assert len({first, second, third}) == 3 and methods.nth(2).is_checked()
    assert shown.count() == 16  # four sites and epochs
    page.emulate_media(media="print")
    assert shown.count() == 16 and shown.first.locator("title").text_content() == third


def test_a_browser_without_has_shows_the_first_choice_of_the_map(browser, folder, tmp_path):
    """A selector that no browser knows stands for :has in a browser that does not know it."""
    older = tmp_path / "older.html"
    older.write_text((folder / INDEX).read_text(encoding="utf-8").replace(":has(", ":unknown("), encoding="utf-8")
    counts = []
    for path in (folder / INDEX, older):
        page = browser.new_page(viewport=LAPTOP)
        page.goto(path.as_uri())
        figure = page.locator(".map").first
        shown = figure.locator(".cells").first.locator("path:visible")
        counts.append((shown.count(), shown.first.locator("title").text_content()))
        assert (figure.locator("fieldset:visible").count() == 0) == (path == older)
        page.close()
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", [INDEX, FORM])
def test_paper_holds_the_tables_uncut_and_what_is_folded_on_the_screen(opened, name, tmp_path):
    page = opened(name, color_scheme="dark")
    text = _printed(page, tmp_path / "page.pdf")
    # on paper a row names its run by the id alone: the form's title has the rest of the name
    page.evaluate("document.querySelectorAll('.runname').forEach(name => name.remove())")
    cells = page.locator("table").first.locator("th, td").all_text_contents()
    missing = [cell for cell in cells if _letters(cell) not in _letters(text)]
    assert cells and missing == []
    page.emulate_media(media="print")
    assert page.evaluate(BOXED) == []
    sentences = page.locator(".sentence").all_text_contents()
    assert sentences and [sentence for sentence in sentences if _letters(sentence) not in _letters(text)] == []


def _printed(page, path: Path) -> str:
    page.pdf(path=str(path), format="A4")
    found = subprocess.run([needed("pdftotext"), "-raw", str(path), "-"], capture_output=True, text=True, check=True)
    return found.stdout


def _letters(text: str) -> str:
    """Letters and digits alone: a line break or a footnote's height changes nothing of them."""
    return "".join(char for char in text if char.isalnum())


@pytest.mark.parametrize("name", PAGES)
def test_foreign_text_is_text_and_nothing_runs_or_leaves(browser, folder, name):
    (path,) = folder.glob(name)
    page = browser.new_page()
    noticed, requested = [], []
    page.on("dialog", lambda dialog: (noticed.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: noticed.append(message.text))
    page.on("pageerror", lambda error: noticed.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(path.as_uri())
    page.evaluate(UNFOLD)
    page.wait_for_load_state("networkidle")
    assert noticed == []
    assert [url for url in requested if not url.startswith("data:")] == [path.as_uri()]
    assert page.locator("script").count() == 0
    assert HOSTILE in page.locator("body").inner_text()
    page.close()
