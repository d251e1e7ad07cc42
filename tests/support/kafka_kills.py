"""Kafka killed in containers, under load: what a kill costs on each topology.

A probe of its own writes transactions and compares, partition by partition, last stable offset and high watermark:
behind a transaction that stays open nobody reads.
"""

import asyncio
import csv
import io
import itertools
import math
import os
import re
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import TransientError
from support.compose import GATEWAY, Deployment
from support.transactions import EACH, PARTITIONS, TOPIC, WRITERS, write
from support.waiting import wait_until

KAFKA = "localhost:9092"
PUBLISH_EVERY_S, ANSWER_S, LOOK_S = 0.25, 2.0, 0.25
RECOVERED_S, SETTLED_S = 180.0, 120.0
FORMER = """\
# One node that is broker and controller, as docker-compose.yml had it.
services:
  controller:
    profiles: [never]
  volume:
    profiles: [never]
  kafka:
    entrypoint: [bash, /etc/kafka/docker/run]
    depends_on: !override
      check: {condition: service_completed_successfully}
    environment:
      KAFKA_PROCESS_ROLES: broker,controller
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@kafka:29093
      KAFKA_LISTENERS: CONTROLLER://:29093,INSIDE://:19092,OUTSIDE://:9092
"""
THREE_NODES = "deploy/three-nodes.yml"
AT_ONCE = """\
# The broker does not wait for the end of its old session.
services:
  kafka:
    entrypoint: [bash, /etc/kafka/docker/run]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A way to run Kafka, and which of its containers are killed together."""

    name: str
    files: Sequence[str]
    kills: Sequence[tuple[str, ...]]
    override: str = ""


SHIPPED = (
    Topology(
        name="controller, broker that waits",
        files=(),
        kills=(("kafka",), ("controller",), ("kafka", "controller")),
    ),
    Topology(
        name="three controllers, three brokers",
        files=(THREE_NODES,),
        kills=(("kafka",), ("kafka", "controller")),
    ),
)
TOPOLOGIES = (
    Topology(name="one combined node", files=("former.yml",), override=FORMER, kills=(("kafka",),)),
    Topology(
        name="controller, broker that does not wait",
        files=("at-once.yml",),
        override=AT_ONCE,
        kills=(("kafka",), ("kafka", "controller")),
    ),
    *SHIPPED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What one kill cost; seconds."""

    topology: str
    killed: str
    stale: bool
    """Whether the broker coordinated transactions by what it knew before its death."""
    skipped: int
    """Decided transactions that Kafka ended without their markers."""
    gap_s: float
    """Longest time between two accepted reflections."""
    playbook_s: float
    """From the kill to the next version of the playbook; infinite: there was none in time."""
    readable_s: float
    """From the kill until nothing stood behind an open transaction."""
    hanging: Sequence[str]
    """Topics with a partition that stayed behind an open transaction."""
    load: float
    """Load of the machine in the minute before all was as before the kill."""

    @property
    def spoilt(self) -> bool:
        """Whether it left something that does not end by itself."""
        return bool(self.hanging) or self.playbook_s == math.inf


HEAD = (
    *("topology", "killed", "kills", "came back stale", "gap in accepted reflections (s, median / max)"),
    *("new playbook after (s, median / max)", "all readable after (s, median / max)"),
    *("decided transactions skipped", "topics left unreadable", "load of the machine (min / max)"),
)


@dataclass(slots=True)
class Load:
    """Publishes reflections through the gateway, each until it is accepted, and watches the playbook's version."""

    project: Deployment
    playbook: str
    accepted: list[float] = field(default_factory=list)
    versions: list[tuple[float, int]] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        headers = {"Authorization": f"Bearer {self.project.key}"}
        async with httpx.AsyncClient(base_url=GATEWAY, headers=headers, timeout=ANSWER_S) as client:
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publish(client, stop))
                tasks.create_task(self._watch(client, stop))
                try:
                    yield
                finally:
                    stop.set()

    async def _publish(self, client: httpx.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = len(self.accepted)
            line = {
                "playbook": self.playbook,
                "reflection_id": f"load-{number}",
                "key_insight": f"Look up earlier refunds of kind {number % 7} before you send one.",
                "reasoning": f"Order {number} was refunded twice: nobody had looked.",
            }
            while not stop.is_set():
                with suppress(httpx.TransportError):
                    if (await client.post("/v1/reflections", json=[line])).is_success:
                        self.accepted.append(time.monotonic())
                        break
                await asyncio.sleep(PUBLISH_EVERY_S)
            await asyncio.sleep(PUBLISH_EVERY_S)

    async def _watch(self, client: httpx.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with suppress(httpx.TransportError):
                answer = await client.get(f"/v1/playbooks/{self.playbook}")
                version = int(answer.json()["version"]) if answer.is_success else 0
                if version and (not self.versions or version > self.versions[-1][1]):
                    self.versions.append((time.monotonic(), version))
            await asyncio.sleep(LOOK_S)


class Probe:
    """Writes transactions with producers of its own, and tells when all of a cluster's topics can be read."""

    def __init__(self, log: KafkaLog, watched: Sequence[tuple[KafkaLog, str]]) -> None:
        self._log = log
        self._watched = [(log, TOPIC), *watched]

    @asynccontextmanager
    async def writing(self, death: str) -> AsyncIterator[None]:
        """Write until Kafka dies; other names each time: a later transaction of a writer would end its open one."""
        counts = dict.fromkeys((f"{death}-{number}" for number in range(WRITERS)), 0)
        async with asyncio.TaskGroup() as tasks:
            writers = [tasks.create_task(write(self._log, name, counts)) for name in counts]
            async with asyncio.timeout(RECOVERED_S):
                while min(counts.values()) < EACH:  # noqa: ASYNC110 - it need not be exact
                    await asyncio.sleep(LOOK_S)
            try:
                yield
            finally:
                for writer in writers:
                    writer.cancel()

    async def hanging(self) -> list[str]:
        """Wait until every partition is readable up to its high watermark of now; return topics that are not."""

        async def look(log: KafkaLog, topic: str) -> str:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLED_S):
                    while True:
                        with suppress(TransientError):
                            await log.settled(topic)
                            return ""
                        await asyncio.sleep(LOOK_S)
            return topic

        return [topic for topic in await asyncio.gather(*(look(*one) for one in self._watched)) if topic]


@asynccontextmanager
async def probe(topics: Sequence[str], replicas: int) -> AsyncIterator[Probe]:
    """Yield a probe; ``topics`` of Combee are watched, too."""
    own, combees = (Connection(bootstrap_servers=KAFKA, prefix=prefix) for prefix in ("probe", "combee"))
    await KafkaAdmin(own).create(TOPIC, PARTITIONS, replicas, {})
    logs = [KafkaLog(own), KafkaLog(combees)]
    try:
        yield Probe(logs[0], [(logs[1], topic) for topic in topics])
    finally:
        for log in logs:
            await log.close()


def table(kills: Sequence[Kill]) -> str:
    """Return CSV: a row per topology and what was killed, with medians and maxima of seconds."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(HEAD)
    for (topology, killed), group in itertools.groupby(kills, key=lambda one: (one.topology, one.killed)):
        row = list(group)
        seconds = [[getattr(one, name) for one in row] for name in ("gap_s", "playbook_s", "readable_s")]
        stale = sum(one.stale for one in row) if "broker" in killed else "–"
        loads = [one.load for one in row]
        out.writerow(
            [
                *(topology, killed, len(row), stale),
                *(f"{statistics.median(times):.0f} / {max(times):.0f}" for times in seconds),
                *(sum(one.skipped for one in row), sum(len(one.hanging) for one in row)),
                f"{min(loads):.0f} / {max(loads):.0f}",
            ]
        )
    return text.getvalue()


ELECTED = re.compile(r"Elected as the txn coordinator for partition (\d+) at epoch (\d+)")
SKIPPED = "likely deleted already"


def is_stale(before: str, after: str) -> bool:
    """Whether a broker's log shows that it began to coordinate under an epoch from before its death."""
    known = {partition: int(epoch) for partition, epoch in ELECTED.findall(before)}
    first = dict(reversed([(one[0], int(one[1])) for one in ELECTED.findall(after)]))
    assert known, "the broker has coordinated nothing, or does not say so"
    return any(epoch <= known.get(partition, -1) for partition, epoch in first.items())


async def kill(
    project: Deployment, topology: Topology, killed: Sequence[str], load: Load, probing: Probe
) -> Kill:
    """Kill containers with SIGKILL under load and start them again; measure until all is as before."""
    ids = [project.containers(service)[0].id for service in killed]
    async with probing.writing(f"death-{time.monotonic_ns()}"):
        before = await _log(project) if "kafka" in killed else ""
        began = time.monotonic()
        await asyncio.to_thread(project.docker, "kill", "-s", "KILL", *ids)
        await asyncio.to_thread(project.docker, "start", *ids)
        started = time.monotonic()
    until = began + RECOVERED_S
    version = 0.0
    while not version and time.monotonic() < until:
        await asyncio.sleep(LOOK_S)
        version = _version_after(load, started)
    hanging = await probing.hanging()
    readable_s = math.inf if hanging else time.monotonic() - began
    for service in killed:  # with three nodes the others go on without it
        await asyncio.to_thread(_wait_healthy, project, service)
    after = (await _log(project)).removeprefix(before)
    return Kill(
        topology=topology.name,
        killed=" and ".join(killed).replace("kafka", "broker"),
        stale="kafka" in killed and is_stale(before, after),
        skipped=after.count(SKIPPED) if "kafka" in killed else 0,
        gap_s=round(max(b - a for a, b in _gaps(load, began)), 1),
        playbook_s=round(version - began, 1) if version else math.inf,
        readable_s=round(readable_s, 1),
        hanging=hanging,
        load=os.getloadavg()[0],
    )


def _wait_healthy(project: Deployment, service: str) -> None:
    def healthy() -> bool:
        return [one.health for one in project.containers(service)] == ["healthy"]

    wait_until(healthy, RECOVERED_S, f"{service}, killed and started again")


def _gaps(load: Load, began: float) -> list[tuple[float, float]]:
    """Return the times between two accepted reflections, from the last one before a kill on."""
    last = sum(at <= began for at in load.accepted) - 1
    return list(itertools.pairwise([*load.accepted[max(last, 0) :], time.monotonic()]))


def _version_after(load: Load, started: float) -> float:
    """Return when the first version after the first accepted reflection was seen; 0: none was yet."""
    resumed = next((at for at in load.accepted if at > started), math.inf)
    return next((at for at, _ in load.versions if at > resumed), 0.0)


async def _log(project: Deployment) -> str:
    container = project.containers("kafka")[0].id
    done = await asyncio.to_thread(
        subprocess.run,
        ["docker", "logs", container],
        env=project.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return str(done.stdout)
