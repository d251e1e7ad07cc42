"""A real browser, whose console is listened to and which asks for nothing outside of this machine."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, Request, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 60_000


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def opened(
    browser: Browser, complaints: list[str], *, width: int = 1180, scheme: str = "light", key: str = ""
) -> Page:
    """Return a new page whose console is listened to."""
    context = await browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]  # one of its literals
        http_credentials={"username": "any", "password": key} if key else None,
    )
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on(
        "console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "requestfailed",
        lambda asked: complaints.append(f"{asked.url}: {asked.failure}") if is_failure(asked) else None,
    )
    page.on("request", lambda asked: complaints.append(asked.url) if is_outside(asked.url) else None)
    return page


def is_failure(asked: Request) -> bool:
    """Tell whether a request failed; one that the browser itself gives up when a page is left did not."""
    return asked.failure != "net::ERR_ABORTED"


def is_outside(url: str) -> bool:
    """Tell whether something is asked for that is not there without a network."""
    return urlsplit(url).hostname not in {"127.0.0.1", None}
