"""The log that a verb works on; what takes a while is said on standard error."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from combee.adapters.kafka import KafkaLog
from combee.cli.shared.console import diagnostics, remark
from combee.local import log
from combee.local.log import Notices, OnFetched
from combee.settings.loading import Settings


def open_log(
    settings: Settings, *, create: bool = False, restarted: Callable[[str], None] = remark
) -> AbstractAsyncContextManager[tuple[KafkaLog, str]]:
    """Open the configured cluster's log, or that of this user's embedded broker: see ``combee.local.log``."""
    return log.open_log(settings, _notices(restarted), create=create)


def open_unchecked(settings: Settings, servers: str) -> AbstractAsyncContextManager[KafkaLog]:
    """Open the log of brokers that run without a look at them or their topics: see ``combee.local.log``."""
    return log.open_unchecked(settings, servers)


def open_broker(settings: Settings) -> AbstractAsyncContextManager[str]:
    """Open the broker alone: its topics are not looked at."""
    return log.open_broker(settings, _notices(remark))


async def brokers(settings: Settings, servers: str) -> str:
    """Return the addresses of the brokers that answer."""
    return await log.brokers(settings, servers)


def _notices(restarted: Callable[[str], None]) -> Notices:
    return Notices(tell=remark, starting=_starting, restarted=restarted)


@contextmanager
def _starting() -> Iterator[OnFetched]:
    with diagnostics().status("starting Apache Kafka on loopback") as status:
        yield lambda present, total: status.update(f"fetching the broker's jars: {present} of {total}")
