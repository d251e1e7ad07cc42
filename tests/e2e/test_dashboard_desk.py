"""The dashboard shows what agents of a service desk learned; ``--screenshots`` takes the pictures of the guides."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from combee.adapters.ports import Outgoing
from combee.assembly.compose import FRONTS, ROLES
from combee_schemas.topics import REFLECTIONS
from support.broker import Broker
from support.browser import CHROMIUM, PATIENCE_MS, browsing, opened
from support.desk import serve_desk
from support.running import running_stack

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PLAYBOOK = "support/desk"
WIDE, PHONE, HEIGHT = 1180, 390, 800
PICTURES = {
    "overview": "/",
    "playbook": f"/playbook?name={PLAYBOOK}",
    "flow": "/flow",
    "batches": "/batches",
    "learning": f"/learning?playbook={PLAYBOOK}",
}
KEPT = {
    *("overview-light", "overview-dark", "overview-phone", "playbook-light", "playbook-dark"),
    *("flow-light", "flow-dark", "batches-phone", "learning-light", "learning-dark"),
}
"""The pictures that the documents show."""
PRICE = {"simulated": {"price_in": 0.40, "price_out": 1.60}}

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]


async def test_the_first_page_says_from_real_runs_whether_it_helps_and_what_it_costs(
    kafka: Broker, topic_prefix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    takes_pictures = bool(request.config.getoption("--screenshots"))
    complaints: list[str] = []
    settings: dict[str, Any] = {"batch_size": 12, "gateway_port": 0, "model_timeout_s": 30.0, "prices": PRICE}
    async with (
        running_stack(
            kafka.bootstrap_servers,
            topic_prefix,
            tmp_path,
            latency="0.25",
            roles=(*ROLES, *FRONTS),
            **settings,
        ) as running,
        browsing() as browser,
    ):
        base = (running.supervisor.folder / "gateway.ready").read_text().strip() + "/dashboard"
        await running.log.produce(Outgoing(topic=REFLECTIONS.name, key=b"", value=b"no message"))
        await serve_desk(running, PLAYBOOK, 200 if takes_pictures else 96, agents=5)
        page = await opened(browser, complaints)
        await page.goto(base + "/")
        await see_what_was_learned(page)
        await open_a_version(page, base)
        if takes_pictures:
            await take_pictures(browser, base, complaints)
    assert complaints == []


async def see_what_was_learned(page: Page) -> None:
    """See the rise and its baseline, the cost in tokens and money, the dead letter, and who may teach."""
    helps = page.get_by_role("region", name="Does it help?")
    rose = re.compile(
        rf"^{PLAYBOOK}: Success rose from 0 % \(0 to \d+\) without a playbook to \d\d+ % .* with version"
    )
    await expect(helps.get_by_role("status")).to_have_text(rose, timeout=PATIENCE_MS)
    await expect(helps.get_by_role("img", name="Success over time")).to_be_visible()
    rows = helps.get_by_role("region", name="Success over versions").locator("tbody tr")
    await expect(rows.first).to_contain_text("version")
    costs = page.get_by_role("region", name="What does it cost?")
    await expect(costs).to_contain_text(
        re.compile(r"today[\d,]+ tokens, 0\.\d+ in money"), timeout=PATIENCE_MS
    )
    await expect(costs).to_contain_text(
        re.compile(r"a lesson[\d,]+ tokens, 0\.0\d+ in money, on average of \d+")
    )
    await expect(costs).to_contain_text(f"tokens ({PLAYBOOK})")
    waiting = page.get_by_role("region", name="Waiting for a person")
    await expect(waiting.get_by_role("link", name="1 dead letter")).to_be_visible(timeout=PATIENCE_MS)
    teaches = page.get_by_role("region", name="Who may teach?")
    await expect(teaches).to_contain_text("team for every playbook")
    await expect(teaches).to_contain_text(f"nobody proves who they are ({PLAYBOOK})")


async def open_a_version(page: Page, base: str) -> None:
    """Open what a version changed, from the table; marks of the plot lead there, too."""
    await (
        page.get_by_role("region", name="Success over versions")
        .get_by_role("link", name="version")
        .first.click()
    )
    await expect(page).to_have_url(
        re.compile(rf"{base}/playbook\?name={PLAYBOOK}&version=\d+"), timeout=PATIENCE_MS
    )


async def take_pictures(browser: Browser, base: str, complaints: list[str]) -> None:
    for theme in ("light", "dark"):
        for name, path in PICTURES.items():
            for width in (WIDE, PHONE):
                picture = f"{name}-{'phone' if width == PHONE else theme}"
                if picture not in KEPT or (width == PHONE and theme == "dark"):
                    continue
                page = await opened(browser, complaints, width=width, scheme=theme)
                await page.goto(base + path)
                await expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=PATIENCE_MS)
                await page.wait_for_load_state("networkidle")
                await page.wait_for_timeout(2_500)  # plots are drawn; nothing is asserted on it
                await page.screenshot(path=IMAGES / f"dashboard-{picture}.png")
                await page.close()
