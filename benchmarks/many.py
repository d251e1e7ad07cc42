"""Ten thousand playbooks at once: what start, memory and latency become, beside a deployment that has ten."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.cluster import CHUNK, ROLES, Cluster, fresh, lessons, running_cluster
from benchmarks.rows import Row, row
from benchmarks.synthetic import entries, version
from combee.adapters.kafka import KafkaLog
from combee_schemas import topics

TIMEOUT_S = 900.0
FEW, MANY = 10, 10_000
ENTRIES = 10
BATCH_SIZE = 4
KIB = 1024
LOOKS_S = 300.0
START_BAR_S = 10.0


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return a row of each for few and for many playbooks; each has a version and a window with a reflection."""
    rows = []
    async with AsyncExitStack() as opened:
        clusters: dict[int, Cluster] = {}
        for count in (FEW, MANY):
            began = time.monotonic()

            async def write(log: KafkaLog, count: int = count) -> None:
                nonlocal began
                await _write(log, count)
                began = time.monotonic()

            coming = running_cluster(
                bootstrap_servers, before=write, batch_size=BATCH_SIZE, max_wait_s=3_600.0
            )
            clusters[count] = await opened.enter_async_context(coming)
            rows.append(
                row(
                    f"start of all services, {count:,} playbooks",
                    [time.monotonic() - began],
                    "s",
                    START_BAR_S,
                )
            )
        for count, cluster in clusters.items():
            rows.append(
                row(f"one reflection each into {count:,} windows", [await _fill(cluster, count)], "s")
            )
        latencies: dict[int, list[float]] = {count: [] for count in clusters}
        for _ in range(runs + 1):
            for count, cluster in clusters.items():
                latencies[count].append(await _latency_ms(cluster))
        for count, cluster in clusters.items():
            rows.append(row(f"last ack → playbook, {count:,} playbooks", latencies[count][1:], "ms"))
            rows += [
                row(f"RSS of {role}, {count:,} playbooks", [_rss_mib(cluster, role)], "MiB") for role in ROLES
            ]
    return rows


def _name(number: int) -> str:
    return f"many/{number}"


async def _write(log: KafkaLog, count: int) -> None:
    """Write the first version of every playbook, to history too."""
    known = entries(ENTRIES)
    for start in range(0, count, CHUNK):
        names = [_name(n) for n in range(start, min(start + CHUNK, count))]
        history = [topics.HISTORY.record(version(name, 1, offset=-1, known=known)) for name in names]
        placed = zip(names, await log.produce(*history), strict=True)
        books = [
            version(name, 1, offset=-1, known=known).model_copy(update={"history_offset": at})
            for name, at in placed
        ]
        await log.produce(*map(topics.PLAYBOOKS.record, books))


async def _fill(cluster: Cluster, count: int) -> float:
    """Give every playbook a reflection that waits; return how long until the next full window is through."""
    began = time.monotonic()
    for start in range(0, count, CHUNK):
        chunk = [lesson for n in range(start, min(start + CHUNK, count)) for lesson in lessons(_name(n), 1)]
        await cluster.publish(chunk)
    for _ in range(BATCH_SIZE):  # on several partitions, behind the others
        await _through(cluster)
    return time.monotonic() - began


async def _through(cluster: Cluster) -> float:
    given = lessons(fresh("late"), BATCH_SIZE)
    await cluster.publish(given)
    name = given[0].playbook
    playbooks = cluster.subscriber.playbooks
    return await cluster.subscriber.until(lambda: playbooks.latest(name).version > 0, LOOKS_S)


async def _latency_ms(cluster: Cluster) -> float:
    given = lessons(fresh("one"), BATCH_SIZE)
    acked = await cluster.publish(given)
    return (await cluster.through(given[0].playbook) - acked) * 1000


def _rss_mib(cluster: Cluster, role: str) -> float:
    status = Path(f"/proc/{cluster.supervisor.pid(role)}/status").read_text("utf-8")
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kib) / KIB
