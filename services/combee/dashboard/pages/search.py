"""Search: playbooks and entries that have all words of a text."""

import asyncio

from nicegui import ui

from combee.dashboard.listing import Listing
from combee.dashboard.pages.evidence import open_evidence
from combee.dashboard.pieces import heading, replace_address
from combee.dashboard.views.entries import search
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import address, search_address
from combee.gateway import playbooks
from combee.gateway.context import Context

MAX_RESULTS = 500
"""Maximum number of entries shown."""
PAUSE_MS = 300
"""Milliseconds after the last key press before a search starts."""


def page(context: Context, text: str = "") -> None:
    """Build the page; the address has the text, so that a search can be shared."""
    heading("Search")

    async def evidence(row: Row) -> None:
        entries = context.playbooks.latest(row["playbook"]).entries
        if entry := next((entry for entry in entries if entry.id == row["id"]), None):
            await open_evidence(context, row["playbook"], entry)

    wanted = ui.input("Words in entries and names of playbooks", value=text).classes("w-full")
    wanted.props(f'type=search autofocus clearable debounce={PAUSE_MS} outlined dense aria-label="Search"')
    status = ui.label().classes("quiet").props("role=status")
    names = ui.element("div").classes("names")
    listing = Listing("Entries found", on_evidence=evidence, on_open=_open)

    async def look() -> None:
        words = wanted.value or ""
        stored = list(playbooks.newest_by_name(context).values())
        matches = await asyncio.to_thread(search, stored, words, MAX_RESULTS)
        if words != (wanted.value or ""):
            return  # the text changed meanwhile
        replace_address(search_address(words))
        shown = f", the first {MAX_RESULTS} are shown" if matches.total > MAX_RESULTS else ""
        status.text = (
            f"{matches.total:,} of {sum(len(playbook.entries) for playbook in stored):,} entries{shown};"
            f" {len(matches.playbooks)} of {len(stored):,} playbooks by name"
            if words.split()
            else ""
        )
        names.clear()
        with names:
            for name in matches.playbooks:
                ui.link(name, address(name))
        listing.show(list(matches.rows))

    wanted.on_value_change(look)
    ui.timer(0, look, once=True)


def _open(row: Row) -> None:
    ui.navigate.to(f"/{row['href']}")
