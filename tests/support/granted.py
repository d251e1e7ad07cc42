"""The generated rights, granted on a secured Kafka: each role shows who it is in a way of its own."""

import asyncio
import csv
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import ConfigurationError, FatalError, Outgoing, TopicPartition
from combee.assembly.compose import FRONTS, JUDGING, ROLES
from combee.assembly.local.supervisor import Process
from combee.core.log import rights
from combee.core.log.rights import Granted, Right, granted
from combee.process.settings.loading import environment
from combee_schemas.topics import TOPICS
from support import exam
from support.cli import Ended, combee
from support.forked import ForkingSupervisor
from support.secured import Grant, SecuredKafka, Way, secured_kafka

PREFIX = "combee"
WAYS: Mapping[str, Way] = {
    "reflect": "scram",
    "shuffle": "token",
    "scan": "certificate",
    "publish": "token",
    "control": "certificate",
    "evaluate": "scram",
    "gateway": "token",
    "agents": "certificate",
    "operators": "scram",
}
GATED = "gated/"
"""Playbooks whose names begin so have a gate."""
READY_S, STOP_S, DEADLINE_S = 120.0, 20.0, 60.0
TABLE = "rights.csv"
TABLES = Path(__file__).parents[2] / "docs" / "results" / "tables"


def user(role: str) -> str:
    """Return whom a role connects as."""
    return f"combee-{role}"


def of_role(secured: SecuredKafka, role: str) -> dict[str, str]:
    """Return the settings of a role."""
    return secured.environment(user(role), WAYS[role])


def connection_of(secured: SecuredKafka, role: str) -> Connection:
    """Return the connection of a role."""
    way = WAYS[role]
    credentials = secured.credentials(user(role), way)
    return Connection.secured(credentials, bootstrap_servers=secured.listeners[way], prefix=PREFIX)


def granted_roles() -> Granted:
    """Return what ``combee topics acls`` shows for these principals."""
    return granted({role: SecuredKafka.principal(user(role), way) for role, way in WAYS.items()}, PREFIX)


class Row(NamedTuple):
    """What a role could do with a topic."""

    role: str
    shows: str
    topic: str
    read: str
    write: str


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write what was seen."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)


def read_table() -> list[Row]:
    """Return what was written."""
    with (TABLES / TABLE).open(newline="", encoding="utf-8") as file:
        return [Row(**row) for row in csv.DictReader(file)]


def said(refused: bool) -> str:  # noqa: FBT001 - one of two words
    """Return whether something was allowed, in a word."""
    return "refused" if refused else "allowed"


def expected() -> list[Row]:
    """Return what the map says of every role and topic."""
    return [
        Row(
            role=role,
            shows=WAYS[role],
            topic=topic.name,
            read=said(role != "operators" and role not in topic.read_by),
            write=said(role != "operators" and role not in topic.written_by),
        )
        for role in WAYS
        for topic in TOPICS
    ]


def grant_of(right: Right) -> Grant:
    """Return a right as the tests' broker takes it."""
    name = "" if right.resource == "cluster" else f"{right.name}*" if right.prefixed else right.name
    operation = re.sub(r"(?<!^)(?=[A-Z])", "-", right.operation).lower()
    return Grant(resource=right.resource, name=name, operation=operation)


async def grant_all(secured: SecuredKafka, rows: Iterable[tuple[str, str, Right]]) -> None:
    """Grant what ``combee topics acls`` shows."""
    by_principal = groupby(sorted(rows, key=itemgetter(1)), key=itemgetter(1))
    for principal, theirs in by_principal:
        await secured.grant(principal, *(grant_of(right) for _, _, right in theirs))


@asynccontextmanager
async def granted_kafka(folder: Path, *outsiders: str) -> AsyncIterator[SecuredKafka]:
    """Start a secured Kafka on which every role has exactly its rights, and these others none."""
    async with secured_kafka(folder, environment(), (*map(user, rights.ROLES), *outsiders)) as secured:
        await grant_all(secured, granted_roles())
        yield secured


# ---- what they do


async def verb(secured: SecuredKafka, role: str, folder: Path, *arguments: str, **env: str) -> Ended:
    """Run a verb of the command line as a role."""
    done = await combee(*arguments, data_dir=folder, **of_role(secured, role), **env)
    assert done.code == 0, f"{' '.join(arguments)}: {done.err}"
    return done


@asynccontextmanager
async def services(
    secured: SecuredKafka, folder: Path, latency: str, **settings: str
) -> AsyncIterator[dict[str, str]]:
    """Run every service under its own principal, with a simulated model; yield the settings that name it."""
    supervisor = ForkingSupervisor(folder, SystemClock())

    async def start(name: str, *arguments: str, **env: str) -> None:
        await supervisor.start(
            Process(
                name=name,
                arguments=arguments,
                env={**environment(), **env},
                ready_file=folder / f"{name}.ready",
            )
        )

    try:
        await start("sim", "sim", "serve", "--latency", latency)
        await supervisor.wait_ready(READY_S)
        model = {
            "COMBEE_MODEL": "simulated",
            "COMBEE_BASE_URL": (folder / "sim.ready").read_text().strip(),
            "COMBEE_API_KEY": "simulated",
        }
        questions = folder / "heldout.jsonl"
        questions.write_text(exam.lines())
        judged = {
            "COMBEE_GATES": json.dumps({f"{GATED}*": "evaluate"}),
            "COMBEE_EVAL_FUNCTION": "support.exam:score",
            "COMBEE_EVAL_QUESTIONS": str(questions),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        for role in (*ROLES, *JUDGING, *FRONTS):
            await start(
                role,
                "worker",
                role,
                **of_role(secured, role),
                **model,
                **judged,
                COMBEE_BATCH_SIZE="6",
                COMBEE_GATEWAY_PORT="0",
                **settings,
            )
        await supervisor.wait_ready(READY_S)
        yield model
    except FatalError as error:
        names = ("sim", *ROLES, *JUDGING, *FRONTS)
        raise AssertionError("\n".join(f"{name}: {supervisor.tail(name)}" for name in names)) from error
    finally:
        await supervisor.stop(STOP_S)


async def use(log: KafkaLog, operation: str, topic: str) -> None:
    """Read the first partition of a topic, or write something invented there."""
    async with asyncio.timeout(DEADLINE_S):
        if operation == "write":
            await log.produce(Outgoing(topic=topic, partition=0, key=b"-", value=b"invented"))
        else:
            async for _ in log.read(TopicPartition(topic=topic, partition=0), 0):
                pass


async def is_refused(log: KafkaLog, operation: str, topic: str) -> bool:
    """Return whether that is refused because a right is missing."""
    try:
        await use(log, operation, topic)
    except ConfigurationError as error:
        return "has no right to" in str(error)
    return False
