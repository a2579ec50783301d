"""Open a page in an installed Chromium, and collect its errors."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("chrome", "microsoft-edge"),
)
NO_BROWSER = "PARITY_NO_BROWSER"


@dataclass
class Opened:
    """A page, its complaints, and how long it kept the browser busy."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    busy_s: float = 0.0


@contextmanager
def chromium():
    """Start an installed Chromium, or say how to install one."""
    if os.environ.get(NO_BROWSER):
        pytest.skip(f"{NO_BROWSER} is set: no page was opened, nothing is known of it")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail(
            f"none of {', '.join(NAMES)} is on PATH; install Chromium (apt install "
            f"chromium), or leave these tests out with {NO_BROWSER}=1"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path,
            args=["--no-sandbox"],  # a container's root has no sandbox
        )
        yield browser
        browser.close()


@contextmanager
def opened(browser, path, *, width=1280, scheme="light"):
    """Open a file, and note every complaint and every request for something else."""
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    seen = Opened(page=page)
    page.on("console", lambda said: seen.complaints.append(said.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("request", lambda asked: seen.requests.append(asked.url))
    inside = page.context.new_cdp_session(page)
    # Of this page's own thread: how loaded the machine is does not count.
    inside.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_function("performance.getEntriesByName('usable').length > 0")
    metrics = inside.send("Performance.getMetrics")["metrics"]
    seen.busy_s = next(m["value"] for m in metrics if m["name"] == "TaskDuration")
    yield seen
    page.close()


def serious_faults(page):
    """Return what a checker of accessibility calls serious: its rules and elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    grave = [one for one in found if one["impact"] in {"serious", "critical"}]
    return [(one["id"], node["html"]) for one in grave for node in one["nodes"]]
