"""The broker that benchmarks run on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from combee.cli.broker import throw_away_broker
from combee.process.settings.loading import load_settings


@asynccontextmanager
async def broker() -> AsyncIterator[str]:
    """Yield the address of the configured broker, else of a throw-away embedded one."""
    configured = load_settings().kafka.bootstrap_servers
    if configured is not None:
        yield configured
        return
    with TemporaryDirectory(prefix="combee-bench-") as folder:
        async with throw_away_broker(Path(folder) / "kafka", benchmark=True) as started:
            yield started
