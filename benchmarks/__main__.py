"""``make bench``: run all benchmarks on the embedded broker (or COMBEE_BOOTSTRAP_SERVERS)."""

import asyncio
from uuid import uuid4

from benchmarks import overhead
from benchmarks.broker import broker
from benchmarks.rows import report
from combee.runtime.settings import load_settings

RUNS = 5


async def main() -> None:
    """Run, print, write."""
    async with broker() as bootstrap_servers:
        settings = load_settings(
            bootstrap_servers=bootstrap_servers,
            topic_prefix=f"bench-{uuid4().hex[:6]}",
            model="simulated",
            batch_size=overhead.REFLECTIONS,
        )
        report(await overhead.measure(settings, bootstrap_servers, RUNS))


if __name__ == "__main__":
    asyncio.run(main())
