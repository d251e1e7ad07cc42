"""Reading: playbooks are followed, fetched for labels and versions, and passed to subscribers."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.adapters.ports import CombeeError, FatalError, TransientError
from combee.core.gate.canary import is_over, place_of, version_for
from combee.sdk.cache import DiskCache, LabelKey, PlaybookCache
from combee.sdk.logs import LogOnce, logger
from combee.sdk.transport import Sink, Transport
from combee.sdk.view import PlaybookView
from combee_schemas.codec import CodecError
from combee_schemas.playbook import CANDIDATE, LATEST, NO_LABEL, PRODUCTION, Label, Playbook

RETRY_S = 1.0
NOT_FOUND_AGAIN_S = 10.0
"""Seconds during which a playbook that was not found is not waited for again."""

Notify = Callable[[PlaybookView], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookRef:
    """A playbook that an agent requests."""

    name: str
    label: str = NO_LABEL
    version: int | None = None
    """The version, which has precedence over the label."""
    fallback: str = ""
    caller: str = ""
    """Name of the reader; only a named caller may be shown a candidate that is tried on a share of the callers."""

    @property
    def problem(self) -> str:
        """The one of name, label, version and caller that has the wrong type, empty if all are right."""
        wanted = (
            ("name", self.name, str),
            ("label", self.label, str),
            ("version", self.version, int | None),
            ("caller", self.caller, str),
        )
        problems = (
            f"its {what} is of type {type(given).__name__}"
            for what, given, kind in wanted
            if not isinstance(given, kind)
        )
        return next(problems, "")


class Reader:
    """Keeps the cache current; runs on the background loop. ``known`` and ``answer`` are for any thread."""

    def __init__(self, transport: Transport, cache_dir: Path | None, once: LogOnce) -> None:
        self._transport = transport
        self._log_once = once
        self._disk = DiskCache(cache_dir) if cache_dir else None
        self._cache = PlaybookCache()
        self._requested: set[LabelKey] = set()
        self._not_before: dict[tuple[str, str, int | None], float] = {}
        self._subscribers: dict[LabelKey, list[Notify]] = {}
        self._passed_on: dict[LabelKey, int | None] = {}
        """The last version passed to subscribers."""
        self._changed = asyncio.Event()
        self._fetching: set[asyncio.Task[None]] = set()

    # ---- for any thread

    def answer(self, ref: PlaybookRef) -> PlaybookView:
        """Return the playbook from memory, else the fallback."""
        return self._view(ref, None if ref.problem else self._find(ref))

    def known(self, ref: PlaybookRef) -> PlaybookView | None:
        """Return the playbook from memory, None if waiting may help."""
        playbook = self._find(ref)
        if playbook is None and self._is_worth_waiting(ref):
            return None
        return self._view(ref, playbook)

    def note_request(self, ref: PlaybookRef) -> bool:
        """Note a request of this playbook; return whether it is the first one."""
        keys = {(ref.name, ref.label), *([(ref.name, CANDIDATE)] if ref.caller else [])}
        if keys <= self._requested:
            return False
        self._requested |= keys
        return True

    def _find(self, ref: PlaybookRef) -> Playbook | None:
        if ref.version is not None:
            return self._cache.version(ref.name, ref.version)
        _, tried = self._tried(ref)
        candidate = None if tried is None else self._cache.version(ref.name, tried)
        return candidate or self._cache.labelled(ref.name, ref.label)

    def _tried(self, ref: PlaybookRef) -> tuple[str, int | None]:
        """Return the reader's group in a canary and its version, None for no version."""
        terms = self._cache.canary(ref.name) if ref.caller and ref.label == NO_LABEL else None
        if terms is None or ref.version is not None or is_over(terms, time.time_ns() // 1_000_000):
            return "", None
        place = place_of(ref.name, terms, ref.caller)
        return place, version_for(place, terms)

    def _view(self, ref: PlaybookRef, playbook: Playbook | None) -> PlaybookView:
        labels = self._cache.labels(playbook) if playbook else ()
        fallback = "" if ref.fallback is None else str(ref.fallback)
        place, tried = ("", None) if ref.problem else self._tried(ref)
        # A caller takes no part until its version has arrived.
        canary = place if tried == (playbook.version if playbook else 0) else ""
        return PlaybookView(
            name=str(ref.name), snapshot=playbook, labels=labels, fallback=fallback, canary=canary
        )

    def _is_worth_waiting(self, ref: PlaybookRef) -> bool:
        if time.monotonic() < self._not_before.get((ref.name, ref.label, ref.version), 0.0):
            return False
        complete = self._cache.is_complete(ref.name)
        return not complete or ref.version is not None or self._cache.missing(ref.name, ref.label) is not None

    # ---- on the background loop

    async def run(self) -> None:
        """Follow for ever; reconnect after a disconnect."""
        sink = Sink(take=self._take, current=self._complete)
        while True:
            try:
                await self._transport.follow(sink)
            except TransientError as error:
                self._log_once.outage("reading", error)
            except FatalError as error:
                self._log_once.warn(
                    "follow", "playbooks are not updated for now, the known versions stay: %s", error
                )
            await asyncio.sleep(RETRY_S)

    def _take(self, key: str, message: Playbook | Label | None) -> None:
        changed = self._cache.apply(key, message)
        if changed is None:
            return
        name, label = changed
        if label != LATEST:
            self._notify(changed)
            if label == PRODUCTION:
                self._notify((name, NO_LABEL))
            return
        for key_changed in {
            (name, LATEST),
            *(key for key in self._requested.copy() | self._subscribers.keys() if key[0] == name),
        }:
            self._notify(key_changed)

    def _complete(self, name: str | None) -> None:
        self._cache.mark_complete(name)
        self._log_once.answered("reading")
        self._log_once.over("follow", "playbooks are updated again")
        self._wake()

    def _notify(self, key: LabelKey) -> None:
        """Pass a change on to subscribers, after fetching its version if necessary."""
        self._wake()
        in_use = key in self._requested or key in self._subscribers
        wanted = self._cache.missing(*key)
        if wanted is not None:
            if in_use:
                self._spawn(self._fetch_and_notify(key, wanted))
            return
        playbook = self._cache.labelled(*key)
        shown = playbook.version if playbook else None
        if shown == self._passed_on.get(key):
            return
        self._passed_on[key] = shown
        self.keep_on_disk(key)
        view = self._view(PlaybookRef(name=key[0], label=key[1]), playbook)
        for notify in list(self._subscribers.get(key, ())):
            notify(view)

    def begin(self, ref: PlaybookRef) -> None:
        """Begin to keep a requested playbook on disk, and a candidate that its reader may be shown in memory."""
        self.keep_on_disk((ref.name, ref.label))
        if ref.caller:
            self._notify((ref.name, CANDIDATE))

    def keep_on_disk(self, key: LabelKey) -> None:
        """Save the version that a label in use shows; an unknown version leaves the saved one."""
        in_use = key in self._requested or key in self._subscribers
        playbook = self._cache.labelled(*key)
        if self._disk and in_use and (playbook is not None or self._cache.is_complete(key[0])):
            self._disk.save(*key, playbook)

    async def _fetch_and_notify(self, key: LabelKey, version: int) -> None:
        while self._cache.missing(*key) == version:
            if await self._fetch(key[0], version):
                self._notify(key)
                return
            await asyncio.sleep(RETRY_S)

    async def _fetch(self, name: str, version: int) -> bool:
        try:
            playbook = await self._transport.fetch(name, version)
        except (CombeeError, CodecError) as error:
            self._log_once.warn(
                "fetch", "version %d of %s cannot be fetched for now: %s", version, name, error
            )
            return False
        if playbook is not None:
            self._log_once.over("fetch", "old versions can be fetched again")
            self._cache.add_old_version(playbook)
            self._wake()
        return playbook is not None

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def fetched(self, ref: PlaybookRef, timeout_s: float) -> PlaybookView:
        """Return the best answer within ``timeout_s`` (s)."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._fetch_missing(ref)
        playbook = self._find(ref)
        if playbook is None:
            self._not_before[ref.name, ref.label, ref.version] = time.monotonic() + NOT_FOUND_AGAIN_S
            playbook = self._from_disk(ref)
        return self._view(ref, playbook)

    async def _fetch_missing(self, ref: PlaybookRef) -> None:
        await self._transport.watch(ref.name, ref.label)
        await self._fetch_labelled(ref)
        _, tried = self._tried(ref)
        if tried and self._cache.version(ref.name, tried) is None:
            # Who reads once would never be shown it, and only control would have such readers.
            await self._fetch(ref.name, tried)

    async def _fetch_labelled(self, ref: PlaybookRef) -> None:
        while self._find(ref) is None:
            changed = self._changed
            if ref.version is not None:
                await self._fetch(ref.name, ref.version)
                return
            missing = self._cache.missing(ref.name, ref.label)
            if missing is not None:
                await self._fetch(ref.name, missing)
                return
            if self._cache.is_complete(ref.name):
                return
            await changed.wait()

    def _from_disk(self, ref: PlaybookRef) -> Playbook | None:
        if self._disk is None or ref.version is not None or self._cache.is_complete(ref.name):
            return None
        saved = self._disk.load(ref.name, ref.label)
        if saved is not None:
            self._cache.restore(ref.name, ref.label, saved)
            logger.info("playbook %s: version %d from disk until the broker answers", ref.name, saved.version)
        return saved

    async def ready(self, timeout_s: float) -> bool:
        """Wait until all playbooks that existed at the start, or all requested ones, are known."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_ready:
                    await self._changed.wait()
        return self._is_ready

    @property
    def _is_ready(self) -> bool:
        names = {name for name, _ in self._requested.copy()} or {""}
        return all(map(self._cache.is_complete, names))

    def subscribe(self, key: LabelKey, notify: Notify) -> None:
        """Call ``notify`` with the present playbook and with every change."""
        self._subscribers.setdefault(key, []).append(notify)
        playbook = self._cache.labelled(*key)
        if playbook is not None:
            self._passed_on[key] = playbook.version
            notify(self._view(PlaybookRef(name=key[0], label=key[1]), playbook))
        elif self._cache.missing(*key) is not None:
            self._notify(key)
        self._spawn(self._transport.watch(*key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    def unsubscribe(self, key: LabelKey, notify: Notify) -> None:
        """Stop calling ``notify``."""
        with suppress(ValueError):
            self._subscribers.get(key, []).remove(notify)
