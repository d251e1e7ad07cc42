"""Each right that ``combee topics acls`` shows is taken away in turn: an error names who lacks what, and on what."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import ConfigurationError, Outgoing, TopicPartition
from combee.assembly import backends
from combee.assembly.compose import ROLES
from combee.core.log import rights
from combee.core.log.rights import Right
from combee.process.settings.loading import environment, load_settings
from combee_schemas.topics import TOPICS
from support.cli import combee
from support.granted import (
    PREFIX,
    WAYS,
    connection_of,
    grant_all,
    grant_of,
    granted_roles,
    of_role,
    use,
    user,
    verb,
)
from support.secured import SecuredKafka, secured_kafka

DEADLINE_S = 30.0
HEARD_S = 10.0
"""Until a broker knows of a change."""
IMPLIED = (
    "IdempotentWrite on cluster",  # in the right to write any topic (KIP-679)
    "Describe on transactional-id combee.shuffle-",  # in the right to write with it
    "Describe on transactional-id combee.publish-",
    "Describe on transactional-id combee.control-",
)
"""Rights that other rights contain for this broker's authorizer, not for all: nobody misses them."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    loop = asyncio.new_event_loop()
    folder = tmp_path_factory.mktemp("rights")
    manager = secured_kafka(folder, environment(), [user(role) for role in rights.ROLES])
    try:
        started = loop.run_until_complete(manager.__aenter__())
        loop.run_until_complete(_prepare(started, folder))
        yield started
    finally:
        loop.run_until_complete(manager.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _prepare(secured: SecuredKafka, folder: Path) -> None:
    """Grant everything, and put something into each topic: nobody is refused where there is nothing to read."""
    await grant_all(secured, granted_roles())
    await verb(secured, "operators", folder, "topics", "create")
    log = KafkaLog(connection_of(secured, "operators"))
    await log.produce(*(Outgoing(topic=topic.name, partition=0, key=b"-", value=b"-") for topic in TOPICS))
    await log.close()


@asynccontextmanager
async def without(secured: SecuredKafka, role: str, right: Right) -> AsyncIterator[None]:
    """Take a right away for as long as the block lasts."""
    principal = secured.principal(user(role), WAYS[role])
    await secured.revoke(principal, grant_of(right))
    try:
        yield
    finally:
        await secured.grant(principal, grant_of(right))


async def exercise(secured: SecuredKafka, role: str, right: Right) -> None:
    """Do what a right is for, as the role's services and verbs do it."""
    connection = connection_of(secured, role)
    log = KafkaLog(connection)
    try:
        match right:
            case Right(resource="topic", prefixed=True):  # every service and verb begins with this
                await backends.topic_problems(load_settings(), connection)
            case Right(resource="topic", operation="Write") | Right(resource="cluster"):
                written = next(
                    topic.name
                    for topic in TOPICS
                    if right.name.endswith(f".{topic.name}") or _is_written(topic.written_by, role, right)
                )
                await use(log, "write", written)
            case Right(resource="topic"):
                await use(log, "read", right.name.removeprefix(f"{PREFIX}."))
            case Right(
                resource="group", operation="Describe"
            ):  # a pause looks at what other services have read
                await log.committed(right.name.removeprefix(f"{PREFIX}."), TOPICS[0].name)
            case Right(resource="group"):
                await join(log, role)
            case Right(resource="transactional-id"):
                await (await log.transactor(f"{role}-0")).close()
    finally:
        await log.close()


def _is_written(writers: tuple[str, ...], role: str, right: Right) -> bool:
    return right.resource == "cluster" and (role in writers or role == "operators")


async def join(log: KafkaLog, role: str) -> None:
    """Become a member of a role's group."""
    read = [topic.name for topic in TOPICS if role in topic.read_by or role == "operators"]

    async def assigned(_: frozenset[TopicPartition]) -> None:
        joined.set()

    joined = asyncio.Event()
    consumer = await log.consumer(role, read[:1], assigned)
    try:
        while not joined.is_set():
            await consumer.poll(0.1)
    finally:
        await consumer.close()


async def refusal(secured: SecuredKafka, role: str, right: Right) -> str:
    """Return what is said where a right is missing; empty if nobody misses it."""
    clock = SystemClock()
    until = clock.monotonic() + HEARD_S
    while clock.monotonic() < until:
        try:
            async with asyncio.timeout(DEADLINE_S):
                await exercise(secured, role, right)
        except ConfigurationError as error:
            return str(error)
    return ""


def named(right: Right) -> str:
    """Return how an error names a right; who may do all is refused the operation itself."""
    operation = {"topic": "Describe", "group": "Read", "transactional-id": "Write"}.get(
        right.resource, right.operation
    )
    operation = operation if right.operation == "All" else right.operation
    resource = f" {right.resource} {right.name}" if right.resource != "cluster" else " cluster"
    return f"{operation} on{resource}"


CASES = [
    pytest.param(role, right, id=f"{role}: {named(right)}")
    for role in rights.ROLES
    for right in rights.rights(role, PREFIX)
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("role", "right"), CASES)
async def test_a_right_that_is_taken_away_is_named_with_principal_and_resource(
    secured: SecuredKafka, role: str, right: Right
) -> None:
    async with without(secured, role, right):
        told = await refusal(secured, role, right)
    if named(right) in IMPLIED:
        assert told == ""
        return
    assert f"{secured.principal(user(role), WAYS[role])} has no right to {named(right)}" in told


CONSUMED = {
    "reflect": "traces",
    "shuffle": "reflections",
    "scan": "scan.0",
    "publish": "updates",
    "control": "playbooks",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("role", ROLES)
async def test_a_service_that_may_not_read_its_topic_ends_and_says_so(
    secured: SecuredKafka, role: str, tmp_path: Path
) -> None:
    right = Right(operation="Read", resource="topic", name=f"{PREFIX}.{CONSUMED[role]}")
    model = {
        "COMBEE_MODEL": "simulated",
        "COMBEE_BASE_URL": "http://127.0.0.1:9",
        "COMBEE_API_KEY": "simulated",
    }
    async with without(secured, role, right):
        ended = await combee("worker", role, data_dir=tmp_path, **of_role(secured, role), **model)
    assert ended.code != 0
    # Of offsets in a transaction the client does not know which were refused: then it names all.
    assert f"{secured.principal(user(role), WAYS[role])} has no right to {right.operation} on " in ended.err
    assert f"--topic {right.name}" in ended.err
