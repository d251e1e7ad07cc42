"""The context passed to the gateway's endpoints and the dashboard's pages."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from combee.adapters.ports import Clock, Log, Outgoing, TransientError
from combee.core.gate.gate import gates_of
from combee.core.names.sources import NOBODY, KnownSources
from combee.core.names.tenants import Tenants
from combee.gateway.access.keys import Keyring, keyring
from combee.gateway.access.sessions import Sessions
from combee.gateway.access.throttle import WrongKeyThrottle
from combee.gateway.feed import Changes, Feed
from combee.gateway.limits import LIMITS, GatewayLimits
from combee.log.history import History
from combee.log.inspection.live import FOLLOWED, Live
from combee.log.inspection.outcomes import RecentOutcomes
from combee.process.settings.loading import Settings
from combee.process.telemetry.health import Health
from combee.process.worker.views import Playbooks, View
from combee_schemas import topics
from combee_schemas.playbook import Label, Playbook

HEALTH_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """State and services behind endpoints and pages; ``work`` keeps it current."""

    log: Log
    clock: Clock
    settings: Settings
    limits: GatewayLimits
    live: Live
    playbooks: Playbooks
    """The newest version of each from memory; any other through ``history``."""
    labels: View[Label]
    """By ``label_key``."""
    history: History
    """All versions of a playbook."""
    outcomes: RecentOutcomes
    """Outcomes of runs by version."""
    feed: Feed
    """Stream of new versions."""
    health: Health
    changed: Changes
    """Notified when a playbook or a label may have changed."""
    known: asyncio.Event
    """Set once every playbook and label has been read."""
    traced: Counter[str]
    """Number of traces received here since the start, by playbook."""
    keys: Keyring
    """API keys."""
    sources: Callable[[], KnownSources]
    """What proves sources, as far as the gateway knows."""
    sessions: Sessions
    """Sessions in which browsers send commands without a key in each request."""
    throttle: WrongKeyThrottle
    """Wrong keys by address."""
    tenants: Tenants
    """Usage and limits of tenants."""
    stopping: asyncio.Event
    """Set when the server stops: streams end."""

    def knows(self) -> bool:
        """Return whether every playbook and label has been read once, so that answers are complete."""
        if self.playbooks.view.is_current and self.labels.is_current:
            self.known.set()
        return self.known.is_set()

    def is_judged(self) -> bool:
        """Return whether a judge is on for any playbook, by the settings or by an existing gate."""
        return bool(self.settings.gates.all_judges or gates_of(self.labels.all().values()))

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks of the server; each runs for ever."""
        return [
            self.playbooks.view.run(),
            self.labels.run(),
            self.feed.run(),
            self.live.run(),
            self.health.beat(),
            self._turn(),
        ]

    async def write(self, *outgoing: Outgoing) -> Sequence[int]:
        """Write records; return their offsets once they are acknowledged.

        Raises
        ------
        TransientError, TimeoutError
            If the log is unavailable: at once if that is known, else when the acknowledgement is late.
        """
        if away := self.health.outage():
            raise TransientError(away)
        async with asyncio.timeout(self.limits.ack_timeout_s):
            return await self.log.produce(*outgoing)

    async def wait_current(self, timeout_s: float) -> None:
        """Wait until everything that was in the log at the start is known; TimeoutError after ``timeout_s``."""
        async with asyncio.timeout(timeout_s):
            await self.playbooks.view.wait_current(timeout_s)
            await self.labels.wait_current(timeout_s)
            await self.feed.wait_current(timeout_s)

    async def _turn(self) -> None:
        """Report progress to health every second."""
        while True:
            self.health.turned()
            await asyncio.sleep(HEALTH_INTERVAL_S)


def context_of(
    log: Log,
    settings: Settings,
    clock: Clock,
    away: Callable[[], str | None] = lambda: None,
    limits: GatewayLimits = LIMITS,
    sources: Callable[[], KnownSources] = lambda: NOBODY,
) -> Context:
    """Return a context without data; ``away`` returns why the log is unavailable, None if it is not.

    Raises
    ------
    SettingsError
        If the configured keys cannot be read.
    """
    changed, tenants = Changes(), Tenants(settings.tenants.limits())
    live = Live(
        log,
        clock,
        batch_size=settings.batch.batch_size,
        spending=settings.spend.caps(),
        tenants=tenants,
        followed=[topic for topic in FOLLOWED if topic is not topics.PLAYBOOKS],
    )

    def published(name: str, playbook: Playbook | None) -> None:
        if playbook is None:
            live.picture.deleted(name)
        else:
            live.picture.take(playbook, playbook.created_at_ms)
        changed.notify()
        feed.changed.notify()

    playbooks = Playbooks(log, published)
    feed = Feed(log, playbooks.history)

    def relabelled(_key: str, _label: Label | None) -> None:
        changed.notify()
        feed.changed.notify()

    labels = View(log, topics.LABELS, on_change=relabelled)
    health = Health(clock, outage=away, dead_letters_per_minute=settings.worker.dead_letters_per_minute)
    health.views = (playbooks.view, labels, feed)
    return Context(
        log=log,
        clock=clock,
        settings=settings,
        limits=limits,
        live=live,
        playbooks=playbooks,
        labels=labels,
        history=playbooks.history,
        outcomes=RecentOutcomes(log, clock),
        feed=feed,
        health=health,
        changed=changed,
        known=asyncio.Event(),
        traced=Counter(),
        keys=keyring(settings.gateway),
        sources=sources,
        sessions=Sessions(),
        throttle=WrongKeyThrottle(limits.failed_keys),
        tenants=tenants,
        stopping=asyncio.Event(),
    )
