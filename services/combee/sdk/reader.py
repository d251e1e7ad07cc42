"""Playbooks in: followed, fetched where a label or a version asks for it, told to those who subscribed."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.ports import CombeeError, FatalError, TransientError
from combee.sdk.disk import Disk
from combee.sdk.logs import Once, logger
from combee.sdk.shelf import Place, Shelf
from combee.sdk.transport import Sink, Transport
from combee.sdk.view import PlaybookView
from combee_schemas.codec import CodecError
from combee_schemas.playbook import LATEST, Label, Playbook

RETRY_S = 1.0
PATIENCE_S = 10.0
"""What could not be found is not waited for again so soon."""

Notify = Callable[[PlaybookView], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an agent wants to read."""

    name: str
    label: str = LATEST
    version: int | None = None
    """Goes before the label."""
    fallback: str = ""

    @property
    def wrong(self) -> str:
        """Say what cannot be read because it is no name, label or version; empty: nothing."""
        wanted = (("name", self.name, str), ("label", self.label, str), ("version", self.version, int | None))
        wrong = (
            f"its {what} is of type {type(given).__name__}"
            for what, given, kind in wanted
            if not isinstance(given, kind)
        )
        return next(wrong, "")


class Reader:
    """Keeps the shelf; runs on the background loop. ``known`` and ``answer`` are for any thread."""

    def __init__(self, transport: Transport, cache_dir: Path | None, once: Once) -> None:
        self._transport = transport
        self._once = once
        self._disk = Disk(cache_dir) if cache_dir else None
        self._shelf = Shelf()
        self._wanted: set[Place] = set()
        self._patience: dict[tuple[str, str, int | None], float] = {}
        self._notified: dict[Place, list[Notify]] = {}
        self._told: dict[Place, int | None] = {}
        """The version that was passed on last."""
        self._changed = asyncio.Event()
        self._fetching: set[asyncio.Task[None]] = set()

    # ---- for any thread

    def answer(self, ask: Ask) -> PlaybookView:
        """Return what memory says, or the fallback."""
        return self._view(ask, None if ask.wrong else self._find(ask))

    def known(self, ask: Ask) -> PlaybookView | None:
        """Return what memory says; None if waiting may help."""
        found = self._find(ask)
        if found is None and self._is_worth_waiting(ask):
            return None
        return self._view(ask, found)

    def want(self, ask: Ask) -> bool:
        """Note that somebody reads this; return whether nobody did before."""
        place = ask.name, ask.label
        if place in self._wanted:
            return False
        self._wanted.add(place)
        return True

    def _find(self, ask: Ask) -> Playbook | None:
        if ask.version is not None:
            return self._shelf.version(ask.name, ask.version)
        return self._shelf.labelled(ask.name, ask.label)

    def _view(self, ask: Ask, found: Playbook | None) -> PlaybookView:
        labels = self._shelf.labels(found) if found else ()
        fallback = "" if ask.fallback is None else str(ask.fallback)
        return PlaybookView(name=str(ask.name), snapshot=found, labels=labels, fallback=fallback)

    def _is_worth_waiting(self, ask: Ask) -> bool:
        if time.monotonic() < self._patience.get((ask.name, ask.label, ask.version), 0.0):
            return False
        complete = self._shelf.is_complete(ask.name)
        return not complete or ask.version is not None or self._shelf.missing(ask.name, ask.label) is not None

    # ---- on the background loop

    async def run(self) -> None:
        """Follow for ever; begin again after a disconnect."""
        sink = Sink(take=self._take, current=self._complete)
        while True:
            try:
                await self._transport.follow(sink)
            except (TransientError, FatalError) as error:
                self._once.warn(
                    "deaf", "playbooks are not kept fresh for now, what is known stays: %s", error
                )
            await asyncio.sleep(RETRY_S)

    def _take(self, key: str, message: Playbook | Label | None) -> None:
        place = self._shelf.take(key, message)
        if place is None:
            return
        name, label = place
        if label != LATEST:
            self._tell(place)
            return
        for one in {
            (name, LATEST),
            *(p for p in self._wanted.copy() | self._notified.keys() if p[0] == name),
        }:
            self._tell(one)

    def _complete(self, name: str | None) -> None:
        self._shelf.complete(name)
        self._once.over("deaf", "playbooks are kept fresh again")
        self._wake()

    def _tell(self, place: Place) -> None:
        """Pass a change of a place on; where its version is not here, after it was fetched."""
        self._wake()
        in_use = place in self._wanted or place in self._notified
        wanted = self._shelf.missing(*place) if place[1] != LATEST else None
        if wanted is not None:
            if in_use:
                self._spawn(self._fetch_and_tell(place, wanted))
            return
        found = self._shelf.labelled(*place)
        shown = found.version if found else None
        if shown == self._told.get(place):
            return
        self._told[place] = shown
        self.keep_on_disk(place)
        view = self._view(Ask(name=place[0], label=place[1]), found)
        for notify in list(self._notified.get(place, ())):
            notify(view)

    def keep_on_disk(self, place: Place) -> None:
        """Save what a place in use shows; what is not known leaves what was saved."""
        in_use = place in self._wanted or place in self._notified
        found = self._shelf.labelled(*place)
        if self._disk and in_use and (found is not None or self._shelf.is_complete(place[0])):
            self._disk.save(*place, found)

    async def _fetch_and_tell(self, place: Place, version: int) -> None:
        while self._shelf.missing(*place) == version:
            if await self._fetch(place[0], version):
                self._tell(place)
                return
            await asyncio.sleep(RETRY_S)

    async def _fetch(self, name: str, version: int) -> bool:
        try:
            found = await self._transport.fetch(name, version)
        except (CombeeError, CodecError) as error:
            self._once.warn("fetch", "version %d of %s cannot be fetched for now: %s", version, name, error)
            return False
        if found is not None:
            self._once.over("fetch", "old versions can be fetched again")
            self._shelf.keep(found)
            self._wake()
        return found is not None

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def found(self, ask: Ask, timeout_s: float) -> PlaybookView:
        """Return what can be had within ``timeout_s`` (s)."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._look_for(ask)
        found = self._find(ask)
        if found is None:
            self._patience[ask.name, ask.label, ask.version] = time.monotonic() + PATIENCE_S
            found = self._from_disk(ask)
        return self._view(ask, found)

    async def _look_for(self, ask: Ask) -> None:
        await self._transport.watch(ask.name, ask.label)
        while self._find(ask) is None:
            changed = self._changed
            if ask.version is not None:
                await self._fetch(ask.name, ask.version)
                return
            missing = self._shelf.missing(ask.name, ask.label)
            if missing is not None:
                await self._fetch(ask.name, missing)
                return
            if self._shelf.is_complete(ask.name):
                return
            await changed.wait()

    def _from_disk(self, ask: Ask) -> Playbook | None:
        if self._disk is None or ask.version is not None or self._shelf.is_complete(ask.name):
            return None
        saved = self._disk.load(ask.name, ask.label)
        if saved is not None:
            self._shelf.restore(ask.name, ask.label, saved)
            logger.info("playbook %s: version %d from disk until the broker answers", ask.name, saved.version)
        return saved

    async def ready(self, timeout_s: float) -> bool:
        """Wait until everything there was at the start is known, or everything that somebody asked for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_ready:
                    await self._changed.wait()
        return self._is_ready

    @property
    def _is_ready(self) -> bool:
        names = {name for name, _ in self._wanted.copy()} or {""}
        return all(map(self._shelf.is_complete, names))

    def subscribe(self, place: Place, notify: Notify) -> None:
        """Notify of what is known and of every change."""
        self._notified.setdefault(place, []).append(notify)
        found = self._shelf.labelled(*place)
        if found is not None:
            self._told[place] = found.version
            notify(self._view(Ask(name=place[0], label=place[1]), found))
        elif place[1] != LATEST and self._shelf.missing(*place) is not None:
            self._tell(place)
        self._spawn(self._transport.watch(*place))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    def unsubscribe(self, place: Place, notify: Notify) -> None:
        """Notify no longer."""
        with suppress(ValueError):
            self._notified.get(place, []).remove(notify)
