"""The dashboard in a real browser, on real services and a simulated model."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from nicegui import core
from playwright.async_api import Page, expect

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, TransientError
from combee.assembly.compose import FRONTS, ROLES
from combee.assembly.local.admin_key import admin_key, dashboard_link
from combee.core.gate.policy import GatePolicy
from combee.core.names.identity import batch_id
from combee.dashboard import mount
from combee.gateway.app import build
from combee.gateway.context import Context, context_of
from combee.gateway.server import serve
from combee.process.settings.loading import load_settings
from combee_schemas.base import DAY_MS
from combee_schemas.codec import encode
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.gate import Verdict
from combee_schemas.outcome import Figures, OutcomeStatistics, VersionOutcomes
from combee_schemas.plan import Branch, BranchSettings
from combee_schemas.playbook import (
    ACE_SECTIONS,
    CANDIDATE,
    PRODUCTION,
    AppliedBatch,
    Change,
    Entry,
    Label,
    Playbook,
    Spend,
)
from combee_schemas.topics import (
    BATCHES,
    DEAD_LETTERS,
    LABELS,
    OUTCOME_STATISTICS,
    REFLECTIONS,
    UPDATES,
    VERDICTS,
    outgoing,
)
from support.broker import Broker
from support.browser import CHROMIUM, PATIENCE_MS, browsing, opened
from support.flat import changed
from support.gates import add, update
from support.gateway import ADMIN, CONFIGURED, READER, GuardedLog, published, publishing, version
from support.ledger import reflection
from support.pictures import MANIFEST
from support.running import Running, running_stack, traces
from support.waiting import until

PLAYBOOK = "support/refunds"
PHONE = 390
PAGES = (
    *("/", "/flow", "/batches", "/playbooks", f"/playbook?name={PLAYBOOK}", "/search?text=e"),
    *("/learning", "/dead-letters", "/configuration"),
)

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]


HOSTILE = '"innerHTML="<img src=x onerror=document.title=1>"><b id=injected>'
"""A key by which nobody is obliged to name a playbook; shown as a window's name."""


async def teach(running: Running, count: int, seed: int) -> None:
    await running.log.produce(*map(outgoing, traces(count, seed, PLAYBOOK).values()))


async def look_at_an_attack(running: Running, page: Page) -> None:
    """Publish what is no reflection under no playbook's name: its letter is shown, its key is no markup."""
    await running.log.produce(Outgoing(topic=REFLECTIONS.name, key=HOSTILE.encode(), value=b"no message"))
    await page.keyboard.press("d")
    await expect(page.get_by_text("not msgpack").first).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator("#injected")).to_have_count(0)


async def watch_a_batch(page: Page) -> None:
    """See a node asked, a node done, and the version they make; nodes are a tree, and a table for all to read."""
    await expect(page.locator("[data-state=ready]").first).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator("[data-state=done]").first).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.get_by_text("· became version 1")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator("[data-state=done]").first).to_contain_text("done")
    tree = page.get_by_role("img", name=re.compile(r"^A tree of \d+ model calls in levels of .*: \d+ done$"))
    await expect(tree.locator("svg path").first).to_be_attached(timeout=PATIENCE_MS)


async def look_at_the_flow(page: Page) -> None:
    """See topics and services as a graph; what it says is also in words."""
    await page.keyboard.press("f")
    graph = page.get_by_role("img", name=re.compile("^The flow of records. .*reflections: "))
    await expect(graph.locator("svg text", has_text="reflections")).to_be_visible(timeout=PATIENCE_MS)
    await expect(graph.locator("svg text", has_text="shuffle")).to_be_visible()


async def look_at_what_was_learned(page: Page) -> None:
    """See the newest lessons, and below them what the reflections said that they rest on."""
    await page.keyboard.press("o")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview", timeout=PATIENCE_MS)
    await expect(page.locator(".learned .quote").first).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_role("link", name=f"{PLAYBOOK} · version 1").click()


async def look_at_the_diff(page: Page) -> None:
    """See version 2 arrive on the open page, go there, and read what it changed."""
    await page.get_by_role("button", name="version 2 is new").click()
    await expect(page.get_by_text("version 2 of 2")).to_be_visible(timeout=PATIENCE_MS)
    buttons = page.get_by_role("button", name="evidence:")
    before = page.locator(".entry:not(.added, .changed, .removed)")
    await page.get_by_role("switch", name="Only what changed").click()
    await expect(before).to_have_count(0, timeout=PATIENCE_MS)
    await expect(page.locator(".entry.added").first).to_be_visible(timeout=PATIENCE_MS)
    kinds = await page.locator("[data-entry]").evaluate_all("all => all.map(e => e.className)")
    assert all({"added", "changed", "removed"} & set(one.split()) for one in kinds)
    await page.get_by_role("switch", name="Only what changed").click()
    await expect(buttons.first).to_be_visible(timeout=PATIENCE_MS)


async def look_at_evidence(page: Page) -> None:
    await page.get_by_role("button", name="evidence:").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Expand").first.click()
    await expect(dialog.get_by_text("insight", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    await expect(dialog.get_by_text("task", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    await dialog.get_by_role("button", name="Close").click()


async def use_the_keyboard(page: Page) -> None:
    """Skip to the content, change page and theme without a mouse."""
    await page.reload()
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_attached()
    for key, name in (("l", "Learning"), ("c", "Configuration"), ("s", "Search"), ("b", "Batches")):
        if name == "Batches":
            await page.get_by_role("heading", level=1).click()  # letters typed into a field are no shortcuts
        await page.keyboard.press(key)
        await expect(page.get_by_role("heading", level=1)).to_have_text(name, timeout=PATIENCE_MS)
        await expect(page.locator("a[aria-current=page]")).to_have_text(name)
    await page.keyboard.press("t")
    await expect(page.locator("body.body--dark")).to_be_attached(timeout=PATIENCE_MS)
    await expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


async def test_a_run_is_watched_from_its_first_node_to_what_taught_an_entry(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    complaints: list[str] = []
    count = 20
    roles = (*ROLES, *FRONTS)
    settings: dict[str, Any] = {"batch_size": count, "gateway_port": 0, "model_timeout_s": 30.0}
    async with (
        running_stack(
            kafka.bootstrap_servers,
            topic_prefix,
            tmp_path,
            latency="2",
            roles=roles,
            **settings,
        ) as running,
        browsing() as browser,
    ):
        base = (running.supervisor.folder / "gateway.ready").read_text().strip() + "/dashboard"
        page = await opened(browser, complaints)
        await page.goto(f"{base}/batches")
        await teach(running, count, seed=1)
        await watch_a_batch(page)
        await look_at_the_flow(page)
        await look_at_what_was_learned(page)
        await teach(running, count, seed=2)
        await look_at_the_diff(page)
        await look_at_evidence(page)
        await use_the_keyboard(page)
        await look_at_an_attack(running, page)
        for scheme, width in (("light", 1180), ("dark", 1180), ("light", PHONE)):
            await see_every_page(await opened(browser, complaints, width=width, scheme=scheme), base)

    assert complaints == []


async def see_branches(page: Page, base: str, log: MemoryLog, newest: Playbook) -> None:
    """A playbook stands beside its branches, in the list and on the page of each; where it has none, nothing does."""
    line, settings = f"{PLAYBOOK}@exp", BranchSettings(batch_size=5, copies=1)
    own = Branch(of=PLAYBOOK, version=newest.version, sequence=1, settings=settings)
    spent = Spend(day=SystemClock().now_ms() // DAY_MS, tokens=900, cap_tokens=900)
    next_one = {"spend": spent, "version": newest.version + 1, "origin": "batch"}
    await page.goto(f"{base}playbook?name={PLAYBOOK}")
    lines = page.get_by_role("region", name="Lines").locator("tbody tr")
    await expect(page.get_by_role("heading", level=1)).to_have_text(PLAYBOOK, timeout=PATIENCE_MS)
    await expect(page.get_by_role("region", name="Lines")).to_be_hidden()
    await published(log, newest.model_copy(update=next_one), version(line, 1, "one", branch=own))
    await expect(lines).to_have_count(2, timeout=PATIENCE_MS)
    await expect(lines.nth(1)).to_contain_text(f"{line}version {newest.version}: batch_size 5, copies 1")
    await expect(lines.nth(1)).to_contain_text("900 of 900 tokens")
    await lines.nth(1).get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(line, timeout=PATIENCE_MS)
    await expect(lines).to_have_count(2, timeout=PATIENCE_MS)
    await page.goto(f"{base}playbooks")
    listed = page.get_by_role("region", name="Playbooks").locator("tbody tr")
    await expect(listed.filter(has_text=f"{line}version")).to_have_count(1, timeout=PATIENCE_MS)
    await expect(page.get_by_text(f"paused: {line}: 900 of 900 tokens")).to_be_visible()


async def see_every_page(page: Page, base: str) -> None:
    """Open every page; nothing is wider than the screen, nor scrolls sideways, and the theme is the browser's."""
    is_dark = await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    width = page.viewport_size["width"] if page.viewport_size else 0
    for path in PAGES:
        await page.goto(base + path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator("body.body--dark" if is_dark else "body.body--light")).to_be_attached()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path


async def read_on_a_phone(page: Page, base: str) -> None:
    """Read every table on a phone: nothing scrolls sideways, and each cell is named and below the one before."""
    for path, region in (
        ("", "Success over versions"),
        ("playbooks", "Playbooks"),
        (f"playbook?name={PLAYBOOK}", "Lines"),
        ("flow", "Newest versions"),
        ("batches", "The last batches"),
        ("dead-letters", "Dead letters"),
        ("configuration", "Settings in force"),
    ):
        await page.goto(base + path)
        cells = page.get_by_role("region", name=region).locator("tbody td:visible")
        await expect(cells.first).to_be_visible(timeout=PATIENCE_MS)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE, path
        assert await page.evaluate(SIDEWAYS) == [], path
        assert await page.evaluate(OVERLAPPING) == [], path


SIDEWAYS = """() => [...document.querySelectorAll('.q-table__middle')]
  .filter(table => table.scrollWidth > table.clientWidth + 1).map(table => table.textContent)"""
"""Returns the tables that scroll sideways."""
OVERLAPPING = """() => [...document.querySelectorAll('tbody tr')].filter(row => {
  const cells = [...row.querySelectorAll('td:not([colspan])')].filter(cell => cell.checkVisibility());
  const named = cells.every(cell => getComputedStyle(cell, '::before').content.length > 2);
  const below = cells.every((cell, at) => !at
    || cell.getBoundingClientRect().top >= cells[at - 1].getBoundingClientRect().bottom - 1);
  return !named || !below;
}).map(row => row.textContent)"""
"""Returns the rows whose cells are not named, one below the other."""


async def test_keys_keep_others_out_what_is_chosen_survives_a_reload_and_what_is_stale_says_since_when() -> (
    None
):
    complaints: list[str] = []
    log = GuardedLog()
    lessons = [version(PLAYBOOK, 1, "one"), version(PLAYBOOK, 2, "one", "two"), version(PLAYBOOK, 3, "three")]
    with structlog.testing.capture_logs() as lines:
        async with browsing() as browser:
            async with keyed(log) as (base, context):
                await knock(base)
                page = await opened(browser, complaints, key=ADMIN)
                await look_at_nothing(page, base)
                await published(log, *lessons, LONG)
                await expect(page.get_by_role("link", name="2 playbooks")).to_be_visible(timeout=PATIENCE_MS)
                await choose_a_version(page, base)
                await look_through_a_long_playbook(page, base)
                await search_everything(page, base)
                await choose_a_theme(page)
                await see_one_batch_after_another(page, base, log)
                async with publishing(log):
                    await give_commands(page, base, context)
                for scheme in ("light", "dark"):
                    other = await opened(browser, complaints, key=ADMIN, scheme=scheme)
                    for path in PAGES:
                        await other.goto(base.rstrip("/") + path)
                        await read_every_text(other)
                    await open_a_dialog(other, base)
                    await read_every_text(other)
                assert complaints == []
                await miss_a_page(page, base)
                await page.goto(base)
                await a_page_whose_topic_must_not_be_read_says_why_until_it_may(page, log)
                await lose_the_broker(page, context)
            await expect(page.locator("#lost")).to_have_text(STALE, timeout=PATIENCE_MS)
            await expect(page.locator("body.lost")).to_be_attached()
    assert ADMIN not in str(lines)
    sent = [(one["kind"], one["playbook"], one["key"]) for one in lines if one["event"] == "command_sent"]
    assert sent == [
        (kind, PLAYBOOK, "operators") for kind in ("promote", "rollback", "edit", "pause", "resume")
    ]


async def test_an_overview_leads_to_what_changed_and_what_waits_and_a_phone_shows_every_table() -> None:
    complaints: list[str] = []
    log = GuardedLog()
    await published(log, version(PLAYBOOK, 1, "one"), version(PLAYBOOK, 2, "one", "two"))
    async with browsing() as browser, keyed(log) as (base, context):
        page = await opened(browser, complaints, key=ADMIN)
        await page.goto(base)
        await until(lambda: context.playbooks.latest(PLAYBOOK).version == len(("one", "two")))
        await retry_a_dead_letter(page, base, log)
        await see_branches(page, base, log, context.playbooks.latest(PLAYBOOK))
        await see_whether_it_helps(page, base, log)
        await see_one_batch_after_another(page, base, log)
        await read_on_a_phone(await opened(browser, complaints, width=PHONE, key=ADMIN), base)
        assert complaints == []  # before the server goes


async def see_whether_it_helps(page: Page, base: str, log: MemoryLog) -> None:
    """See success by version on the first page, with what changed at each; a version leads to its page."""
    name, table = "support/helped", page.get_by_role("region", name="Success over versions")
    helps = page.get_by_role("region", name="Does it help?")
    await page.goto(base)
    await expect(page.get_by_role("link", name="playbooks").first).to_be_visible(timeout=PATIENCE_MS)
    await expect(table).to_be_hidden()
    await expect(helps).to_contain_text("No run has told its outcome yet")
    added = (Change(kind="add", entry_id="misc-00001"),)
    await published(log, version(name, 1, changes=added), version(name, 2))
    said = Figures(runs=5, successes=3, failures=1, unscored=1)
    told = tuple(
        VersionOutcomes(version=number, figures=said, last_at_ms=1_000 + number) for number in range(4)
    )
    await log.produce(OUTCOME_STATISTICS.record(OutcomeStatistics(line=name, versions=told)))
    rows = table.get_by_role("row")
    await expect(rows).to_have_count(4, timeout=PATIENCE_MS)
    await expect(rows.nth(1)).to_contain_text("75 % (30 to 95)")
    await expect(rows.nth(1)).to_contain_text("nothing")
    await expect(rows.nth(2)).to_contain_text("+1")
    await expect(rows.nth(3)).to_contain_text("no playbook")
    await expect(helps.get_by_role("status")).to_have_text(
        f"{name}: Success went from 75 % (30 to 95) without a playbook to 75 % (41 to 93) with versions 1 to 2."
        " The intervals overlap: this may be chance."
    )
    await expect(helps.get_by_role("img", name="Success over time")).to_be_visible()
    await read_every_text(page)
    await rows.nth(2).get_by_role("link", name="version 1").click()
    await expect(page).to_have_url(re.compile(rf"{base}playbook\?name={name}&version=1"), timeout=PATIENCE_MS)
    await expect(page.get_by_role("switch", name="Only what changed")).to_be_checked(timeout=PATIENCE_MS)


APPROVED = GatePolicy(judges=("approve",))
GATED = GatePolicy(judges=("evaluate", "approve"))
TAUGHT = Entry(id="misc-00002", section="OTHERS", content="ask for the order", sources=("key:shop",))


async def test_a_person_judges_candidates_with_figures_before_them_and_by_keyboard_alone() -> None:
    complaints: list[str] = []
    log = GuardedLog()
    one = version(PLAYBOOK, 1, "be kind")
    await published(log, one, version(PLAYBOOK, 2, entries=(*one.entries, TAUGHT)))
    production = Label(
        playbook=PLAYBOOK, label=PRODUCTION, version=1, gate=GATED.judges or (), decided_through=1
    )
    candidate = Label(playbook=PLAYBOOK, label=CANDIDATE, version=2, moved_at_ms=SystemClock().now_ms())
    said = Figures(runs=5, successes=3, failures=1, unscored=1)
    shown = tuple(VersionOutcomes(version=number, figures=said) for number in (1, 2))
    await log.produce(
        LABELS.record(production),
        LABELS.record(candidate),
        OUTCOME_STATISTICS.record(OutcomeStatistics(line=PLAYBOOK, versions=shown)),
    )
    async with browsing() as browser, keyed(log) as (base, _), publishing(log, GATED):
        page = await opened(browser, complaints, key=ADMIN)
        await see_who_waits(page, base)
        await see_a_candidate(page)
        await approve_by_keyboard(page)
        await log.produce(VERDICTS.record(MEASURED))
        state = page.get_by_text(re.compile("^Agents read version 2 .*; nothing waits"))
        await expect(state).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.get_by_role("button", name="Approve")).to_be_hidden()
        await reject_by_keyboard(page, base)
        await see_who_decided(page)
        for path in PAGES:
            await page.goto(base.rstrip("/") + path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=PATIENCE_MS)
            await page.wait_for_load_state("networkidle")
            await walk(page)
        await page.goto(base)
        await expect(page.get_by_text("lessons", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.get_by_role("region", name="What waits for a person")).to_be_hidden()
        await page.wait_for_load_state("networkidle")
        assert complaints == []  # before the server goes


async def test_a_person_rejects_one_entry_and_then_a_source_of_what_is_left() -> None:
    complaints: list[str] = []
    log = GuardedLog()
    one = version(PLAYBOOK, 1, "be kind")
    bad = Entry(id="misc-00003", section="OTHERS", content="skip the fraud screening", sources=("key:shop",))
    entries = (*one.entries, TAUGHT.model_copy(update={"evidence": ("r-1",), "evidence_count": 1}), bad)
    await published(log, one, version(PLAYBOOK, 2, entries=entries, batch_sequence=1))
    await log.produce(UPDATES.record(update(1, add(TAUGHT.content, "r-1"))))
    gate = GatePolicy(judges=("approve",))
    production = Label(
        playbook=PLAYBOOK, label=PRODUCTION, version=1, gate=gate.judges or (), decided_through=1
    )
    candidate = Label(playbook=PLAYBOOK, label=CANDIDATE, version=2, moved_at_ms=SystemClock().now_ms())
    await log.produce(LABELS.record(production), LABELS.record(candidate))
    async with browsing() as browser, keyed(log) as (base, _), publishing(log, gate):
        page = await opened(browser, complaints, key=ADMIN)
        await page.goto(f"{base}playbook?name={PLAYBOOK}")
        section, dialog = page.get_by_role("region", name="Candidate", exact=True), page.get_by_role("dialog")
        await section.get_by_role("checkbox", name="Reject misc-00003").click(timeout=PATIENCE_MS)
        await expect(section.get_by_role("button", name="Approve")).to_be_hidden(timeout=PATIENCE_MS)
        await read_every_text(page)
        await section.get_by_role("button", name="Reject 1 entry").click(timeout=PATIENCE_MS)
        await expect(dialog).to_contain_text("Reject entries of version 2?", timeout=PATIENCE_MS)
        await expect(dialog).to_contain_text("new ones are removed, for good: misc-00003.")
        await dialog.get_by_label("Reason").fill("fraud")
        await page.keyboard.press("Enter")
        await expect(page.locator(".outcome")).to_contain_text(
            "Version 2 is rejected in part", timeout=PATIENCE_MS
        )
        await expect(section).to_contain_text("version 3 waits for approve", timeout=PATIENCE_MS)
        await expect(section.locator(".entry.added")).to_have_count(1, timeout=PATIENCE_MS)
        await expect(section.locator(".entry.added")).to_contain_text("ask for the order")
        await expect(section.get_by_role("button", name="Approve")).to_be_visible()
        trail = page.get_by_role("region", name="Who decided what").locator("tbody tr[class]")
        await expect(trail.filter(has_text="version 2 rejected in part (misc-00003)")).to_contain_text(
            "fraud"
        )
        await section.get_by_role("button", name="Reject").click(timeout=PATIENCE_MS)
        await dialog.get_by_label("Only what these sources taught").click(timeout=PATIENCE_MS)
        await page.get_by_role("option", name="unproven (1)").click(timeout=PATIENCE_MS)
        await dialog.get_by_label("Only what these sources taught").press("Tab")
        await expect(page.get_by_role("option", name="unproven (1)")).to_be_hidden(timeout=PATIENCE_MS)
        await dialog.get_by_label("Reason").fill("no source")
        await dialog.get_by_role("button", name="Reject").click(timeout=PATIENCE_MS)
        await expect(section).to_contain_text("nothing waits", timeout=PATIENCE_MS)
        await expect(trail.filter(has_text="version 3 rejected in part (unproven)")).to_contain_text(
            "no source"
        )
        await page.wait_for_load_state("networkidle")
        assert complaints == []  # before the server goes


async def test_a_link_opens_the_dashboard_for_commands_once_and_in_one_browser_alone(tmp_path: Path) -> None:
    complaints: list[str] = []
    log = GuardedLog()
    key = admin_key(load_settings(data_dir=tmp_path))
    settings = {"gateway_keys": key.gateway_keys, "gate": "approve"}
    with structlog.testing.capture_logs() as lines:
        async with browsing() as browser, keyed(log, **settings) as (base, _), publishing(log, APPROVED):
            await published(log, version(PLAYBOOK, 1, "be kind"))
            link = await asyncio.to_thread(dashboard_link, base.removesuffix("/dashboard/"), key)
            page = await opened(browser, complaints)
            await page.goto(link)
            await expect(page).to_have_url(base, timeout=PATIENCE_MS)
            await page.goto(f"{base}playbook?name={PLAYBOOK}")
            await page.get_by_role("button", name="Promote").click()
            await page.get_by_role("dialog").get_by_label("Label").fill("tested")
            await page.get_by_role("dialog").get_by_role("button", name="Promote").click()
            await until(lambda: any(line["event"] == "command_sent" for line in lines))
            assert complaints == []

            other = await opened(browser, [])
            await other.goto(link)
            await expect(other.get_by_text("opened before")).to_be_visible(timeout=PATIENCE_MS)
            refused = await other.request.get(base)
            assert refused.status == HTTPStatus.UNAUTHORIZED
    assert [line["key"] for line in lines if line["event"] == "command_sent"] == ["admin"]
    assert link.partition("#")[2] not in str(lines)
    assert key.key not in str(lines)


MEASURED = Verdict(
    playbook=PLAYBOOK,
    candidate=2,
    production=1,
    judge="evaluate",
    accepts=True,
    reason="not worse: measured",
    figures={"n": 40, "difference": 0.02},
    judged_by="model m",
)


async def see_who_waits(page: Page, base: str) -> None:
    """The first page lists what waits for a person, and leads there."""
    await page.goto(base)
    waiting = page.get_by_role("region", name="What waits for a person").locator("tbody tr")
    await expect(waiting).to_have_count(1, timeout=PATIENCE_MS)
    await expect(waiting).to_contain_text("agents read version 1; evaluate is awaited, too")
    await read_every_text(page)
    await reach(page, f"approve version 2 of {PLAYBOOK}")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(PLAYBOOK, timeout=PATIENCE_MS)


async def see_who_decided(page: Page) -> None:
    """The audit trail has every decision, with who, why and on which figures."""
    trail = page.get_by_role("region", name="Who decided what").locator("tbody tr[class]")
    rejected = trail.filter(has_text="version 3 rejected, agents go on reading version 2")
    await expect(rejected).to_contain_text("key:operatorstoo brief", timeout=PATIENCE_MS)
    accepted = trail.filter(has_text="version 2 accepted")
    await expect(accepted).to_contain_text("n 40, difference 0.02 (model m)")
    await expect(accepted).to_contain_text("I looked")
    await expect(trail.filter(has_text="version 3 from import")).to_contain_text("key:operators")
    await read_every_text(page)


async def see_a_candidate(page: Page) -> None:
    """See what it says otherwise and who taught it, what judges said, and how runs went beside production."""
    section = page.get_by_role("region", name="Candidate", exact=True)
    await expect(section.locator(".entry.added")).to_have_count(1, timeout=PATIENCE_MS)
    await expect(section.locator(".entry.added")).to_contain_text("ask for the order")
    await expect(section.locator(".entry.added")).to_contain_text("from key:shop")
    await expect(section.get_by_role("button", name="evidence: 0 for misc-00002")).to_be_visible()
    verdicts = section.get_by_role("region", name="Verdicts").locator("tbody tr")
    await expect(verdicts).to_have_count(2, timeout=PATIENCE_MS)
    await expect(verdicts.nth(0)).to_contain_text("evaluateis awaited")
    runs = section.get_by_role("region", name="Outcomes of candidate and production").locator("tbody tr")
    await expect(runs.nth(0)).to_contain_text("candidate275 % (30 to 95)51")
    await expect(runs.nth(1)).to_contain_text("production1")
    await read_every_text(page)


async def approve_by_keyboard(page: Page) -> None:
    """Approve with Enter alone; Escape closes without a word, and the focus comes back."""
    dialog, approve = page.get_by_role("dialog"), page.get_by_role("button", name="Approve")
    await reach(page, "Approve")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("Reason")).to_be_focused(timeout=PATIENCE_MS)
    await expect(dialog).to_contain_text("Agents read version 1; compared with it: 1 added.")
    await expect(dialog).to_contain_text("Agents read version 2 once evaluate accepts it, too.")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden(timeout=PATIENCE_MS)
    await expect(approve).to_be_focused(timeout=PATIENCE_MS)
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("Reason")).to_be_focused(timeout=PATIENCE_MS)
    await page.keyboard.type("I looked")
    await page.keyboard.press("Enter")
    await expect(page.locator(".outcome")).to_have_text(
        "Version 2 is approved, and waits for evaluate.", timeout=PATIENCE_MS
    )
    await expect(dialog).to_be_hidden(timeout=PATIENCE_MS)
    await expect(approve).to_be_hidden(timeout=PATIENCE_MS)
    await expect(page.get_by_role("region", name="Verdicts")).to_contain_text("I looked")


async def reject_by_keyboard(page: Page, base: str) -> None:
    """A rejection without a reason is refused."""
    asked = {"text": "## OTHERS\n[misc-00001] helpful=1 harmful=0 :: be brief\n", "format": "ace"}
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {ADMIN}"}) as client:
        path = f"/v1/playbooks/{PLAYBOOK}/import?wait_s=10"
        answer = await client.post(base.removesuffix("/dashboard/") + path, json=asked)
    assert answer.status_code == HTTPStatus.OK, answer.text
    dialog = page.get_by_role("dialog")
    await expect(page.get_by_role("button", name="Reject")).to_be_visible(timeout=PATIENCE_MS)
    await reach(page, "Reject")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("Reason")).to_be_focused(timeout=PATIENCE_MS)
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("give a reason", timeout=PATIENCE_MS)
    await page.keyboard.type("too brief")
    await page.keyboard.press("Enter")
    await expect(page.locator(".outcome")).to_have_text(
        "Version 3 is rejected, agents go on reading version 2.", timeout=PATIENCE_MS
    )
    await expect(dialog).to_be_hidden(timeout=PATIENCE_MS)


MOST_STEPS = 80


async def reach(page: Page, name: str) -> None:
    """Tab from the page's beginning to a button; wherever the focus is on the way, it can be seen."""
    await page.evaluate("document.activeElement?.blur()")
    for _ in range(MOST_STEPS):
        await page.keyboard.press("Tab")
        at, is_seen = await page.evaluate(FOCUSED)
        assert is_seen, at
        if at == name:
            return
    raise AssertionError(f"{name} cannot be reached")


async def walk(page: Page) -> None:
    """Tab once around a page: the focus can be seen wherever it is, and nothing holds it."""
    await page.evaluate("document.activeElement?.blur()")
    for _ in range(MOST_STEPS):
        await page.keyboard.press("Tab")
        at, is_seen = await page.evaluate(FOCUSED)
        assert is_seen, (page.url, at)
        if await page.evaluate("document.activeElement === document.body"):
            return
    raise AssertionError(f"the focus does not leave {page.url}")


FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const outline = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  const ring = outline || style.boxShadow !== 'none';
  const name = e.getAttribute('aria-label') ?? (e.querySelector('.block') ?? e).textContent.trim();
  return [name, ring || !!e.closest('.q-field--focused, .q-slider, .q-toggle') || e === document.body];
}"""
"""Returns the name of what has the focus, and whether that is seen; Quasar marks its own fields and switches."""


MANY = 674
LONG = version(
    "support/long",
    1,
    entries=tuple(
        Entry(
            id=f"x-{number:05d}",
            section=ACE_SECTIONS[number * len(ACE_SECTIONS) // MANY],
            content=f"lesson number {number} " + "with words " * (number % 20),
        )
        for number in range(MANY)
    ),
)


async def look_through_a_long_playbook(page: Page, base: str) -> None:
    """However many entries there are, the page has those in sight and no box scrolls in it; all are found."""
    entries = page.locator("[data-entry]")
    await page.goto(f"{base}playbook?name={LONG.name}")
    await expect(page.locator("[data-entry='x-00000']")).to_be_visible(timeout=PATIENCE_MS)
    assert await entries.count() < MANY / 5
    assert await page.evaluate(BOXES) == []
    await expect(page.get_by_text(re.compile(r"about [\d,]+ of 16,000 prompt tokens"))).to_be_visible()
    await page.get_by_role("navigation", name="Sections").get_by_role("button", name="Others").click()
    await expect(page.locator("[data-entry='x-00578']")).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_label("Find in this version").fill("NUMBER 300")
    await expect(entries).to_have_count(1, timeout=PATIENCE_MS)
    await page.get_by_role("link", name="Link to x-00300").click()
    permalink = f"{base}playbook?name={LONG.name}&version=1&entry=x-00300"
    await expect(page).to_have_url(permalink, timeout=PATIENCE_MS)
    await page.goto(permalink)
    await expect(page.locator("[data-entry='x-00300'].chosen")).to_be_in_viewport(timeout=PATIENCE_MS)


BOXES = """() => [...document.querySelectorAll('.page, .page *')].filter(e =>
  ['auto', 'scroll'].includes(getComputedStyle(e).overflowY) && e.scrollHeight > e.clientHeight + 1)
  .map(e => e.className)"""
"""Returns what scrolls up and down inside the page."""


async def search_everything(page: Page, base: str) -> None:
    """Find an entry of any playbook; the address has the search, and a result leads to the entry."""
    await page.goto(base)
    await page.keyboard.press("s")
    await page.get_by_label("Search").fill("lesson 673")
    await expect(page.get_by_text("1 of 675 entries; 0 of 2 playbooks by name")).to_be_visible(
        timeout=PATIENCE_MS
    )
    await expect(page).to_have_url(f"{base}search?text=lesson+673", timeout=PATIENCE_MS)
    await page.reload()
    await page.get_by_role("link", name="Link to x-00673").click()
    await expect(page.locator("[data-entry='x-00673'].chosen")).to_be_in_viewport(timeout=PATIENCE_MS)


async def open_a_dialog(page: Page, base: str) -> None:
    await page.goto(f"{base}playbook?name={PLAYBOOK}")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("dialog")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator("[class*=-enter-active]")).to_have_count(0, timeout=PATIENCE_MS)  # it fades in


async def see_one_batch_after_another(page: Page, base: str, log: MemoryLog) -> None:
    """See the tree of a batch give way to that of the next one, which has another shape."""
    await page.goto(f"{base}batches")
    name, plan = MANIFEST.plan.playbook, MANIFEST.plan
    for sequence, widths in ((1, (6, 2, 1)), (2, (3, 1)), (3, (9, 3, 1))):
        manifest = changed(MANIFEST, sequence=sequence, widths=widths, batch_id=batch_id(name, sequence))
        await log.produce(BATCHES.record(manifest))
        if sequence > 1:
            applied = AppliedBatch(plan=plan)
            await published(log, version(name, sequence - 1, batch=applied, batch_sequence=sequence - 1))
        plan = manifest.plan
        levels = " → ".join(map(str, widths))
        tree = page.get_by_role("img", name=f"A tree of {sum(widths)} model calls in levels of {levels}")
        await expect(tree.locator("svg text", has_text="…")).to_have_count(widths[0], timeout=PATIENCE_MS)


async def give_commands(page: Page, base: str, context: Context) -> None:
    """Promote, roll back, edit and export; no script of the page can read the key."""
    dialog, outcome = page.get_by_role("dialog"), page.locator(".outcome")
    await page.goto(f"{base}playbook?name={PLAYBOOK}&version=2")
    await page.get_by_role("button", name="Promote").click()
    await dialog.get_by_label("Label").fill("latest")
    await dialog.get_by_role("button", name="Promote").click()
    refused = dialog.get_by_text("latest moves by itself: it is not a label to set")
    await expect(refused).to_be_visible(timeout=PATIENCE_MS)
    await dialog.get_by_label("Label").fill("production")
    await dialog.get_by_role("button", name="Promote").click()
    await expect(outcome).to_have_text("production points at version 2.", timeout=PATIENCE_MS)
    links = page.get_by_role(
        "link", name="production → version 2"
    )  # among the labels, and in the audit trail
    await expect(links.first).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Roll back").click()
    await expect(dialog.get_by_text("Version 4 will have the content of version 2")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden(timeout=PATIENCE_MS)
    assert context.playbooks.latest(PLAYBOOK).version == len(("one", "two", "three"))
    await page.get_by_role("button", name="Roll back").click()
    await dialog.get_by_role("button", name="Roll back").click()
    await expect(outcome).to_have_text("Version 4 was made.", timeout=PATIENCE_MS)
    # Version 4 has the content of version 2, so that there is nothing to go back to.
    await expect(dialog).to_be_hidden(timeout=PATIENCE_MS)
    await expect(page.get_by_role("button", name="Roll back")).to_be_hidden(timeout=PATIENCE_MS)
    await edit(page, context)
    await export(page)
    made = context.playbooks.latest(PLAYBOOK)
    assert (made.origin, made.issued_by) == ("edit", "key:operators")
    await pause_and_resume(page)
    kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    assert ADMIN not in await page.evaluate(kept)


async def pause_and_resume(page: Page) -> None:
    """Pause a playbook and let it learn again; only what changes something is offered."""
    dialog, outcome = page.get_by_role("dialog"), page.locator(".outcome")
    for verb, other, told in (
        ("Pause", "Resume", "It is paused until"),
        ("Resume", "Pause", "It learns again."),
    ):
        await expect(page.get_by_role("button", name=other)).to_be_hidden(timeout=PATIENCE_MS)
        await page.get_by_role("button", name=verb).click()
        await dialog.get_by_role("button", name=verb).click()
        await expect(outcome).to_contain_text(told, timeout=PATIENCE_MS)
        await expect(dialog).to_be_hidden(timeout=PATIENCE_MS)


async def retry_a_dead_letter(page: Page, base: str, log: MemoryLog) -> None:
    """Publish a dead letter's record again from its row, by keyboard; it holds once."""
    lesson = reflection(1, PLAYBOOK)
    letter = DeadLetter(
        origin_topic=REFLECTIONS.name,
        origin_partition=0,
        origin_offset=0,
        key=PLAYBOOK.encode(),
        value=encode(lesson),
        service="shuffle",
        reason="password=hunter2hunter2 was wrong",
        record_id=lesson.reflection_id,
        playbook=PLAYBOOK,
    )
    await log.produce(DEAD_LETTERS.record(letter))
    await page.goto(base)
    waiting = page.get_by_role("region", name="What waits for a person")
    await expect(waiting).to_contain_text("the newest one: password=***", timeout=PATIENCE_MS)
    await waiting.get_by_role("link", name="1 dead letter").click()
    row = page.get_by_role("region", name="Dead letters").locator("tbody tr")
    await expect(row).to_contain_text(re.compile(r"^0-\d+"), timeout=PATIENCE_MS)
    identity = (await row.locator("td").first.text_content() or "").strip()
    before = sum((await log.ends(REFLECTIONS.name)).values())
    await reach(page, f"Retry {identity}")
    await page.keyboard.press("Enter")
    await expect(page.locator(".outcome")).to_contain_text(
        f"{identity} was published again", timeout=PATIENCE_MS
    )
    await expect(row).to_contain_text("retried", timeout=PATIENCE_MS)
    await expect(page.get_by_role("button", name=f"Retry {identity}")).to_have_count(0)
    assert sum((await log.ends(REFLECTIONS.name)).values()) == before + 1
    await page.goto(base)
    await expect(page.get_by_text("Nothing.", exact=True)).to_be_visible(timeout=PATIENCE_MS)


async def edit(page: Page, context: Context) -> None:
    """Add an entry to the newest version as text; what cannot be read is refused, and nothing of it is lost."""
    await page.get_by_role("button", name="version 4 is new").click()
    await expect(page.get_by_text("version 4 of 4")).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Edit").click()
    text = page.get_by_role("textbox", name="Playbook as text")
    written = await text.input_value()
    for added, told in (("no line of a playbook\n", page.get_by_text("the edited text: line 1")), ("", None)):
        await text.fill(f"{added}{written}- a lesson of mine\n")
        await page.get_by_role("button", name="Save").click()
        if told is not None:
            await expect(told).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator(".outcome")).to_have_text("Version 5 was made.", timeout=PATIENCE_MS)
    assert "a lesson of mine" in [one.content for one in context.playbooks.latest(PLAYBOOK).entries]


async def export(page: Page) -> None:
    for name, file, beginning in (
        ("Markdown", "support-refunds-4.md", "# support/refunds (version 4)"),
        ("JSON", "support-refunds-4.json", "{"),
        ("ACE text", "support-refunds-4.txt", "## STRATEGIES & INSIGHTS"),
        ("SKILL.md", "SKILL.md", "---"),
    ):
        await page.get_by_role("button", name="Export").click()
        async with page.expect_download(timeout=PATIENCE_MS) as download:
            await page.get_by_role("menuitem", name=name).click()
        await expect(page.get_by_role("menu")).to_be_hidden(timeout=PATIENCE_MS)
        saved = await download.value
        assert saved.suggested_filename == file
        text = await asyncio.to_thread(Path(await saved.path()).read_text)
        assert text.startswith(beginning)


async def a_page_whose_topic_must_not_be_read_says_why_until_it_may(page: Page, log: GuardedLog) -> None:
    told = page.get_by_text("dead-letters cannot be read: TopicAuthorizationFailedError")
    log.deny("dead-letters")
    await log.produce(Outgoing(topic="dead-letters", value=b"fetched"))
    await page.keyboard.press("d")
    await expect(told).to_be_visible(timeout=PATIENCE_MS)
    await page.keyboard.press("l")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Learning", timeout=PATIENCE_MS)
    await expect(told).to_be_hidden(timeout=PATIENCE_MS)
    await page.keyboard.press("d")
    await expect(told).to_be_visible(timeout=PATIENCE_MS)
    log.deny()
    await expect(told).to_be_hidden(timeout=PATIENCE_MS)


async def knock(base: str) -> None:
    """Nobody looks without a key that may."""
    async with httpx.AsyncClient() as client:
        answers = [await client.get(base, auth=("any", key)) for key in ("", READER, ADMIN)]
    assert [one.status_code for one in answers] == [401, 403, 200]
    policy = answers[-1].headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"} <= set(policy)


STALE = re.compile(r"^No connection since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: the figures are from then\.$")


async def look_at_nothing(page: Page, base: str) -> None:
    """See that there is nothing yet, and that this is no warning."""
    for path, told in (
        ("dead-letters", "None."),
        *((path, "Nothing yet") for path in ("playbooks", "learning", "")),
    ):
        await page.goto(base + path)
        visible = page.get_by_text(told).locator("visible=true")
        await expect(visible.first).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator("table:visible, .plot:visible")).to_have_count(0)
        await expect(page.locator(".q-table__bottom .q-icon", has_text="warning")).to_have_count(0)


async def choose_a_theme(page: Page) -> None:
    """Choose dark, then light; both are still so after a reload."""
    for name in ("dark", "light"):
        await page.keyboard.press("t")
        await expect(page.locator(f"body.body--{name}")).to_be_attached(timeout=PATIENCE_MS)
        await expect(page.get_by_role("button", name=f"Theme: {name}")).to_be_visible()
        await page.wait_for_function(f"document.cookie.includes('{name}')", timeout=PATIENCE_MS)
        await page.reload()
        await expect(page.get_by_role("button", name=f"Theme: {name}")).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator(f"body.body--{name}")).to_be_attached()


async def choose_a_version(page: Page, base: str) -> None:
    """Step to a version: the address names it, and leads to it; buttons are named as they are labelled."""
    await page.goto(f"{base}playbook?name={PLAYBOOK}")
    await page.get_by_role("button", name="Version before").click()
    await expect(page.get_by_text("version 2 of 3")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page).to_have_url(f"{base}playbook?name={PLAYBOOK}&version=2", timeout=PATIENCE_MS)
    await page.reload()
    await expect(page.get_by_text("version 2 of 3")).to_be_visible(timeout=PATIENCE_MS)
    button = page.get_by_role("button", name="evidence: 0 for misc-00002")
    await expect(button).to_have_text("evidence: 0", timeout=PATIENCE_MS)


async def read_every_text(page: Page) -> None:
    """Every text stands out from what is behind it as WCAG asks for (AA)."""
    await expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=PATIENCE_MS)
    assert await page.evaluate(FAINT) == []


async def miss_a_page(page: Page, base: str) -> None:
    answer = await page.goto(f"{base}nope/nope")
    assert answer is not None
    assert answer.status == HTTPStatus.NOT_FOUND
    await expect(page.get_by_role("heading", name="There is no such page")).to_be_visible(timeout=PATIENCE_MS)


async def lose_the_broker(page: Page, context: Context) -> None:
    """Kafka answers no more: the page says since when, and goes on when it does."""
    told = page.get_by_text("Kafka has not answered since")
    await expect(told).to_be_hidden(timeout=PATIENCE_MS)
    look, context.live._look = context.live._look, away  # type: ignore[method-assign]
    await expect(told).to_be_visible(timeout=PATIENCE_MS)
    context.live._look = look  # type: ignore[method-assign]
    await expect(told).to_be_hidden(timeout=PATIENCE_MS)


async def away(*, lags: bool) -> None:  # noqa: ARG001 - as what it stands for
    raise TransientError("away")


FAINT = r"""() => {
  const light = c => { const f = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const parsed = s => { const m = s.match(/[\d.]+/g).map(Number); return [...m.slice(0, 3), m[3] ?? 1]; };
  const over = (top, below) => below.map((v, i) => top[i] * top[3] + v * (1 - top[3]));
  const above = e => e ? [...above(e.parentElement), e] : [];
  const behind = e => above(e).reduce((c, x) => over(parsed(getComputedStyle(x).backgroundColor), c),
    document.body.matches('.body--dark') ? [18, 18, 18] : [255, 255, 255]);
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim(), e = texts.currentNode.parentElement, style = getComputedStyle(e);
    if (!text || !e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    if (e.closest('[aria-hidden=true], script, style, .q-tooltip, .graph.tree')) continue;
    const back = behind(e), colour = parsed(e instanceof SVGElement ? style.fill : style.color);
    colour[3] *= above(e).reduce((o, x) => o * getComputedStyle(x).opacity, 1);
    const [dark, bright] = [light(back), light(over(colour, back))].sort((a, b) => a - b);
    const ratio = (bright + .05) / (dark + .05), size = parseFloat(style.fontSize);
    if (ratio < (size >= 24 ? 3 : 4.5)) found.push(`${text}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""
"""Returns the texts whose contrast is below what WCAG 2 asks for (AA), with it; marks on the nodes of a tree repeat
what the table beside it says."""


@asynccontextmanager
async def keyed(log: MemoryLog, **settings: Any) -> AsyncIterator[tuple[str, Context]]:
    """Yield the address of a dashboard for which keys are configured, and what it shows."""
    context = context_of(log, load_settings(gateway_port=0, **(settings or CONFIGURED)), SystemClock())
    # The library has one application a process, and this process had one before.
    core.app.middleware_stack = None
    core.app.user_middleware.clear()
    app, stop = build(context), asyncio.Event()
    mount(app, context)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(context, stop, app=app, on_ready=ready.set_result))
    try:
        yield await asyncio.wait_for(ready, PATIENCE_MS / 1000) + "/dashboard/", context
    finally:
        stop.set()
        await serving
