"""Debian's chromium as the browser tests start it: without its own sandbox, and without network calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.end_to_end.conftest import needed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser, closed at the end; without chromium the test skips, in CI it fails."""
    from playwright.sync_api import sync_playwright  # half a second, in every worker that collects

    path = needed("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def close_assistant(page: Page, address: str) -> None:
    """Opens MLflow's pages in a fresh profile and closes the panel *MLflow Assistant*, as `fa-registry ui` tells a user."""
    page.goto(address)
    page.get_by_text("MLflow Assistant").first.wait_for()
    page.get_by_role("button", name="Close", exact=True).click()
