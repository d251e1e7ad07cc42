"""The log that a verb works on; progress is shown on standard error."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import Log
from combee.assembly.local import log
from combee.assembly.local.log import Notices, OnFetched
from combee.cli.shared.console import diagnostics, remark
from combee.log.inspection.branches import LinesToday, lines_today
from combee.process.settings.loading import Settings


def open_log(
    settings: Settings, *, create: bool = False, restarted: Callable[[str], None] = remark
) -> AbstractAsyncContextManager[tuple[KafkaLog, str]]:
    """Open the configured cluster's log, or that of this user's broker: see ``combee.assembly.local.log``."""
    return log.open_log(settings, _notices(restarted), create=create)


def open_unchecked(settings: Settings, servers: str) -> AbstractAsyncContextManager[KafkaLog]:
    """Open the log of running brokers without checking them or their topics: see ``combee.assembly.local.log``."""
    return log.open_unchecked(settings, servers)


def open_broker(settings: Settings) -> AbstractAsyncContextManager[str]:
    """Open the broker without checking its topics."""
    return log.open_broker(settings, _notices(remark))


async def brokers(settings: Settings, servers: str) -> str:
    """Return the addresses of the brokers that answer."""
    return await log.brokers(settings, servers)


async def lines_now(known: Log, settings: Settings) -> LinesToday:
    """Return the present state of all playbooks and branches, by the settings' caps and limits."""
    now_ms, start = SystemClock().now_ms(), settings.batch.batch_size
    return await lines_today(known, now_ms, start, settings.spend.caps(), settings.tenants.limits())


def _notices(restarted: Callable[[str], None]) -> Notices:
    return Notices(tell=remark, starting=_starting, restarted=restarted)


@contextmanager
def _starting() -> Iterator[OnFetched]:
    with diagnostics().status("starting Apache Kafka on loopback") as status:
        yield lambda present, total: status.update(f"fetching the broker's jars: {present} of {total}")
