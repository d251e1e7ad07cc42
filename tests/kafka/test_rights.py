"""Every role works with the rights that ``combee topics acls`` shows, and with none beyond them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from combee import AsyncClient
from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.clock import SystemClock
from combee.compose import FRONTS, ROLES
from combee.core import rights
from combee.local.supervisor import Process, Supervisor
from combee.ports import CombeeError, ConfigurationError, FatalError, Outgoing, TopicPartition
from combee.settings.loading import environment
from combee_schemas.topics import TOPICS
from support.broker import Broker
from support.cli import Ended, combee
from support.granted import grant_all
from support.secured import SecuredKafka, secured_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PREFIX, NESTED = "combee", "combee.b"
INTRUDER, TENANT = "intruder", "tenant-b"
READY_S, STOP_S, DEADLINE_S = 120.0, 20.0, 60.0
RUNS = Path(__file__).parents[2] / "examples" / "runs.jsonl"


def user(role: str) -> str:
    return f"combee-{role}"


@asynccontextmanager
async def granted_kafka(folder: Path) -> AsyncIterator[SecuredKafka]:
    users = (*map(user, rights.ROLES), INTRUDER, TENANT)
    async with secured_kafka(folder, environment(), users) as secured:
        await grant_all(secured, rights.granted({}, PREFIX))
        await grant_all(secured, rights.granted(dict.fromkeys(rights.ROLES, f"User:{TENANT}"), NESTED))
        yield secured


async def verb(secured: SecuredKafka, role: str, folder: Path, *arguments: str, **env: str) -> Ended:
    done = await combee(*arguments, data_dir=folder, **secured.environment(user(role)), **env)
    assert done.code == 0, f"{' '.join(arguments)}: {done.err}"
    return done


@asynccontextmanager
async def services(secured: SecuredKafka, folder: Path, latency: str) -> AsyncIterator[dict[str, str]]:
    """Run every service under its own principal, with a simulated model; yield the settings that name it."""
    supervisor = Supervisor(folder, SystemClock())

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
        for role in (*ROLES, *FRONTS):
            await start(
                role,
                "worker",
                role,
                **secured.environment(user(role)),
                **model,
                COMBEE_BATCH_SIZE="6",
                COMBEE_GATEWAY_PORT="0",
            )
        await supervisor.wait_ready(READY_S)
        yield model
    except FatalError as error:
        names = ("sim", *ROLES, *FRONTS)
        raise AssertionError("\n".join(f"{name}: {supervisor.tail(name)}" for name in names)) from error
    finally:
        await supervisor.stop(STOP_S)


def connection(secured: SecuredKafka, name: str, prefix: str = PREFIX) -> Connection:
    return Connection.secured(
        secured.credentials(name), bootstrap_servers=secured.bootstrap_servers, prefix=prefix
    )


async def use(log: KafkaLog, operation: str, topic: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        if operation == "write":
            await log.produce(Outgoing(topic=topic, partition=0, key=b"-", value=b"invented"))
        else:
            async for _ in log.read(TopicPartition(topic=topic, partition=0), 0):
                pass


async def is_refused(log: KafkaLog, operation: str, topic: str) -> bool:
    try:
        await use(log, operation, topic)
    except ConfigurationError as error:
        return "has no right to" in str(error)
    return False


async def reaches_nothing(secured: SecuredKafka, outsider: str, operation: str, topic: str) -> bool:
    """Return whether somebody without any right fails; for them the broker has no such topic."""
    log = KafkaLog(connection(secured, outsider))
    try:
        await use(log, operation, topic)
    except CombeeError:
        return True
    finally:
        await log.close()
    return False


async def something_everywhere(secured: SecuredKafka) -> None:
    """Nobody is refused where there is nothing to read."""
    log = KafkaLog(connection(secured, user("operators")))
    await log.produce(*(Outgoing(topic=topic.name, partition=0, key=b"-", value=b"-") for topic in TOPICS))
    await log.close()


async def unexpected(secured: SecuredKafka, role: str) -> list[str]:
    """Return what a role may do though the map says nothing of it, or may not though it does."""
    log = KafkaLog(connection(secured, user(role)))
    try:
        return [
            f"{role} {operation} {topic.name}: {'refused' if refused else 'allowed'}"
            for topic in TOPICS
            for operation, roles in (("write", topic.written_by), ("read", topic.read_by))
            if operation == "read" or role not in roles  # what it may write is left alone
            if (refused := await is_refused(log, operation, topic.name)) == (role in roles)
        ]
    finally:
        await log.close()


# TLS waits 30 s for the peer's farewell, and here the broker ends before: the loop closes what is left.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_every_role_works_with_exactly_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with granted_kafka(tmp_path) as secured:
        await verb(secured, "operators", tmp_path, "topics", "create")
        async with services(secured, tmp_path, "0.05") as model:
            learn = ("learn", str(RUNS), "--playbook", "support/refunds")
            await verb(secured, "operators", tmp_path, *learn, **model)
            for name, value in secured.environment(user("agents")).items():
                monkeypatch.setenv(name, value)
            version = await publish_and_read()
            ledger = await verb(secured, "operators", tmp_path, "ledger", "--json")
            for arguments in (
                ("playbook", "rollback", "support/refunds", "1"),
                ("status", "--json"),
                ("topics", "check"),
                ("dlq", "list"),
            ):
                await verb(secured, "operators", tmp_path, *arguments)
        await something_everywhere(secured)
        refusals = [await unexpected(secured, role) for role in rights.ROLES if role != "operators"]
        attempts = [
            reaches_nothing(secured, outsider, operation, topic)
            for outsider in (INTRUDER, TENANT)
            for operation, topic in (("write", "commands"), ("read", "reflections"))
        ]
        outside = await asyncio.gather(*attempts)
    assert version >= 1
    assert json.loads(ledger.out)["violations"] == []
    assert all(outside)
    assert sum(refusals, []) == []  # noqa: RUF017 - eight short lists


async def publish_and_read() -> int:
    async with AsyncClient() as client:
        view = await client.playbook("support/refunds")
        client.publish(playbook="support/refunds", text="Say when a refund arrives.")
        await client.flush()
        return view.version


@pytest.mark.timeout(120)
async def test_a_prefix_within_anothers_is_refused_before_anything_is_made(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async def create(prefix: str) -> Ended:
        env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": prefix}
        return await combee("topics", "create", data_dir=tmp_path, **env)

    assert (await create(topic_prefix)).code == 0
    refused = await create(f"{topic_prefix}.b")
    assert (refused.code, f"choose another COMBEE_TOPIC_PREFIX, such as {topic_prefix}-b" in refused.err) == (
        2,
        True,
    )
    assert (await create(topic_prefix)).code == 0


@pytest.mark.timeout(120)
async def test_a_prefix_around_anothers_is_refused_too(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    inner = await combee(
        "topics", "create", data_dir=tmp_path, COMBEE_TOPIC_PREFIX=f"{topic_prefix}.b", **env
    )
    refused = await combee("topics", "create", data_dir=tmp_path, COMBEE_TOPIC_PREFIX=topic_prefix, **env)
    assert (inner.code, refused.code) == (0, 2)
    assert f"{topic_prefix} and {topic_prefix}.b lie within one another" in refused.err
