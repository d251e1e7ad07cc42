"""A cluster with TLS, SCRAM and ACLs: whatever is wrong has its own sentence, with what mends it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import trustme

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog, Reachability
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import ConfigurationError, Outgoing, TopicPartition
from combee.assembly import backends
from combee.cli.doctor import probes
from combee.core.log import layout
from combee.log.inspection.live import Live
from combee.process.settings.loading import environment, load_settings
from combee_schemas import topics
from support.cli import combee
from support.secured import Grant, SecuredKafka, Way, secured_kafka
from support.waiting import until

pytestmark = pytest.mark.kafka

PREFIX = "combee"
ADMIN, WORKER, READER = "admin", "worker", "reader"
DENIED = tuple(f"denied-{n}" for n in range(9))
NOBODY = "nobody"
WRONG_PASSWORD: Mapping[str, Any] = {"sasl_password": "wrong"}
AT_ONCE_S = 8.0
"""Less than a request's time-out, which is 15 s."""
STALL_S = 30.0
TOPIC = "history"
"""Any topic keyed by playbook."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    loop = asyncio.new_event_loop()
    users = (ADMIN, WORKER, READER, NOBODY, *DENIED)
    manager = secured_kafka(tmp_path_factory.mktemp("secured"), environment(), users)
    try:
        started = loop.run_until_complete(manager.__aenter__())
        loop.run_until_complete(_prepare(started))
        yield started
    finally:
        loop.run_until_complete(manager.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _prepare(secured: SecuredKafka) -> None:
    """Give the administrator everything, and let it create the topics over its secured connection."""
    everything = [("topic", "*"), ("group", "*"), ("transactional-id", "*"), ("cluster", "")]
    await secured.grant(ADMIN, *(Grant(resource=one, name=name, operation="all") for one, name in everything))
    admin = connection(secured, ADMIN)
    await backends.create_topics(load_settings(), admin)
    log = KafkaLog(admin)
    await log.produce(Outgoing(topic=TOPIC, partition=0, value=b"something to read"))
    await log.close()


def connection(secured: SecuredKafka, user: str, way: Way = "scram", **changes: Any) -> Connection:
    servers = changes.pop("servers", secured.listeners[way])
    prefix = changes.pop("prefix", PREFIX)
    credentials = secured.credentials(user, way, **changes)
    return Connection.secured(credentials, bootstrap_servers=servers, prefix=prefix)


async def refusal(connection: Connection) -> str:
    reachability = Reachability(connection)
    try:
        with pytest.raises(ConfigurationError) as raised:
            await reachability.check()
    finally:
        await reachability.close()
    return str(raised.value)


# ---- reaching it


async def test_doctor_says_why_no_broker_answers(secured: SecuredKafka) -> None:
    with pytest.raises(ConfigurationError, match="the broker refuses User:"):
        await probes.broker(connection(secured, WORKER, **WRONG_PASSWORD))
    (answers,) = await probes.broker(connection(secured, WORKER))
    assert answers.verdict == "ok"


@pytest.mark.parametrize("way", get_args(Way))
async def test_the_right_settings_reach_a_secured_cluster(secured: SecuredKafka, way: Way) -> None:
    reachability = Reachability(connection(secured, WORKER, way))
    await reachability.check()
    await reachability.close()


WRONG: Mapping[str, tuple[Callable[[SecuredKafka], Mapping[str, Any]], str]] = {
    "no TLS": (
        lambda _: {"security_protocol": "PLAINTEXT"},
        "speaks SASL_SSL, COMBEE_SECURITY_PROTOCOL says PLAINTEXT",
    ),
    "no TLS, but SASL": (lambda _: {"security_protocol": "SASL_PLAINTEXT"}, "set it to SASL_SSL"),
    "no SASL": (lambda _: {"security_protocol": "SSL"}, "speaks SASL_SSL, COMBEE_SECURITY_PROTOCOL says SSL"),
    "TLS where there is none": (lambda it: {"servers": it.kafka.bootstrap_servers}, "set it to PLAINTEXT"),
    "another authority": (lambda it: {"ssl_cafile": it.other_ca_file}, "set COMBEE_SSL_CAFILE"),
    "the machine's authorities": (lambda _: {"ssl_cafile": None}, "certificate is not trusted"),
    "another host": (
        lambda it: {"servers": it.bootstrap_servers.replace("127.0.0.1", "localhost")},
        "certificate is for another host",
    ),
    "a wrong password": (
        lambda _: WRONG_PASSWORD,
        "refuses User:worker: correct COMBEE_SASL_USERNAME",
    ),
    "another mechanism": (lambda _: {"sasl_mechanism": "PLAIN"}, "set COMBEE_SASL_MECHANISM"),
    "no certificate": (
        lambda _: {"way": "certificate", "ssl_certfile": None},
        "the broker wants a client certificate: set COMBEE_SSL_CERTFILE",
    ),
    "a certificate of another authority": (
        lambda it: {"way": "certificate", "ssl_certfile": it.certificate(WORKER, trustme.CA())},
        "the broker does not accept the client's certificate",
    ),
    "a certificate where passwords are wanted": (
        lambda it: {"way": "certificate", "servers": it.bootstrap_servers},
        "speaks SASL_SSL, COMBEE_SECURITY_PROTOCOL says SSL",
    ),
    "a wrong client secret": (
        lambda _: {"way": "token", "oauth_client_secret": "wrong"},
        "refuses client worker (401, invalid_client: no such client): correct COMBEE_OAUTH_CLIENT_ID",
    ),
    "a token that the broker does not accept": (
        lambda it: {"way": "token", "oauth_token_url": it.strange_tokens.url},
        "refuses User:worker: correct COMBEE_OAUTH_CLIENT_ID",
    ),
    "tokens where passwords are wanted": (
        lambda it: {"way": "token", "servers": it.bootstrap_servers},
        "set COMBEE_SASL_MECHANISM",
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), WRONG.values(), ids=WRONG)
async def test_what_is_wrong_with_a_connection_is_said_with_its_remedy(
    secured: SecuredKafka, changes: Callable[[SecuredKafka], Mapping[str, Any]], sentence: str
) -> None:
    assert sentence in await refusal(connection(secured, WORKER, **changes(secured)))


async def test_a_verb_that_is_refused_says_one_line_and_exits_with_2(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    env = secured.environment(WORKER, COMBEE_SASL_PASSWORD="wrong")  # noqa: S106
    done = await combee("status", data_dir=tmp_path, **env)
    assert done.code == 2
    assert done.err.strip().count("\n") == 0
    assert "refuses User:worker" in done.err


# ---- rights

Use = Callable[[KafkaLog], Awaitable[object]]


async def write(log: KafkaLog) -> None:
    await log.produce(Outgoing(topic=TOPIC, key=b"k", value=b"v"))


async def read(log: KafkaLog) -> None:
    async for _ in log.read(TopicPartition(topic=TOPIC, partition=0), 0):
        pass


async def follow(log: KafkaLog) -> None:
    async for _ in log.follow(TOPIC):
        pass


async def join(log: KafkaLog) -> None:
    async def assigned(_: frozenset[TopicPartition]) -> None:
        return

    consumer = await log.consumer("doctor", [TOPIC], assigned)
    try:
        while True:
            await consumer.poll(0.1)
    finally:
        await consumer.close()


async def begin(log: KafkaLog) -> None:
    await (await log.transactor("doctor")).close()


def on_topic(*operations: str) -> list[Grant]:
    return [Grant(resource="topic", name="combee.*", operation=one) for one in operations]


GROUP = Grant(resource="group", name="combee.*", operation="read")
IDEMPOTENT = Grant(resource="cluster", name="", operation="idempotent-write")
MISSING: Mapping[str, tuple[Use, list[Grant], str]] = {
    "writing at all": (write, on_topic("describe"), "IdempotentWrite on cluster"),
    "writing": (write, [IDEMPOTENT, *on_topic("describe")], "Write on topic combee.history"),
    "reading": (read, on_topic("describe"), "Read on topic combee.history"),
    "following": (follow, on_topic("describe"), "Read on topic combee.history"),
    "joining a group": (join, on_topic("describe", "read"), "Read on group combee.doctor"),
    "reading as a group": (join, [GROUP, *on_topic("describe")], "Read on topic combee.history"),
    "a transaction": (begin, on_topic("describe", "write"), "Write on transactional-id combee.doctor"),
}


@pytest.mark.parametrize(
    ("use", "grants", "sentence", "user"),
    [(*case, user) for case, user in zip(MISSING.values(), DENIED, strict=False)],
    ids=MISSING,
)
async def test_a_missing_right_is_said_with_principal_operation_and_resource(
    secured: SecuredKafka, use: Use, grants: list[Grant], sentence: str, user: str
) -> None:
    await secured.grant(user, *grants)
    await fully_described(secured, user)
    log = KafkaLog(connection(secured, user))
    try:
        with pytest.raises(ConfigurationError) as raised:
            async with asyncio.timeout(STALL_S):
                await use(log)
    finally:
        await log.close()
    assert f"User:{user} has no right to {sentence}" in str(raised.value)


async def fully_described(secured: SecuredKafka, user: str) -> None:
    """Wait until the broker has heard of a grant."""
    async with asyncio.timeout(STALL_S):
        while True:
            log = KafkaLog(connection(secured, user))
            with suppress(Exception):
                await log.partitions(TOPIC)
                await log.close()
                return
            await log.close()


@pytest.mark.parametrize("use", [read, follow])
async def test_who_has_no_right_at_all_is_refused_at_once(secured: SecuredKafka, use: Use) -> None:
    log = KafkaLog(connection(secured, NOBODY))
    try:
        with pytest.raises(
            ConfigurationError, match=r"User:nobody has no right to Describe on topic combee\.history"
        ):
            async with asyncio.timeout(AT_ONCE_S):
                await use(log)
    finally:
        await log.close()


async def test_topics_that_may_not_be_described_are_not_called_missing(secured: SecuredKafka) -> None:
    with pytest.raises(ConfigurationError, match=r"User:denied-7 has no right to Describe on topic combee\."):
        await backends.topic_problems(load_settings(), connection(secured, DENIED[7]))


async def test_configurations_that_may_not_be_read_are_not_called_wrong(secured: SecuredKafka) -> None:
    user = DENIED[8]
    await secured.grant(user, *on_topic("describe"))
    await fully_described(secured, user)
    with pytest.raises(
        ConfigurationError, match=rf"User:{user} has no right to DescribeConfigs on topic combee\."
    ):
        await backends.topic_problems(load_settings(), connection(secured, user))


# ---- what goes on without them


async def created(secured: SecuredKafka, prefix: str) -> Mapping[str, int]:
    """Create every topic; the reader may read all of them."""
    admin = KafkaAdmin(connection(secured, ADMIN, prefix=prefix))
    wanted = {one.topic.name: one.partitions for one in layout.wanted(2, 3)}
    for name, partitions in wanted.items():
        await admin.create(name, partitions, 1, {})
    rights = [("topic", "read"), ("topic", "describe"), ("group", "describe")]
    await secured.grant(
        READER, *(Grant(resource=kind, name=f"{prefix}.*", operation=one) for kind, one in rights)
    )
    await admin.wait_created(wanted)
    return wanted


async def test_partitions_are_counted_without_the_right_to_write(
    secured: SecuredKafka, topic_prefix: str
) -> None:
    wanted = await created(secured, topic_prefix)
    log = KafkaLog(connection(secured, READER, prefix=topic_prefix))
    try:
        assert {name: await log.partitions(name) for name in wanted} == wanted
        assert await log.ends(topics.PLAYBOOKS.name) == {0: 0, 1: 0}
        with pytest.raises(ConfigurationError, match="no right to IdempotentWrite"):
            await log.produce(Outgoing(topic=topics.REFLECTIONS.name, value=b"no"))
    finally:
        await log.close()


async def test_a_topic_without_rights_is_named_in_the_live_picture_until_they_are_granted(
    secured: SecuredKafka, topic_prefix: str
) -> None:
    letters, batches = topics.DEAD_LETTERS.name, topics.BATCHES.name
    no_letters, no_batches = (
        Grant(resource="topic", name=f"{topic_prefix}.{name}", operation="read")
        for name in (letters, batches)
    )
    await created(secured, topic_prefix)
    await secured.deny(READER, no_letters)
    master, log = (KafkaLog(connection(secured, user, prefix=topic_prefix)) for user in (ADMIN, READER))
    live = Live(log, SystemClock(), batch_size=4)
    task = asyncio.create_task(live.run())

    def unreadable() -> Mapping[str, str]:
        return live.picture.snapshot(0).unreadable

    try:
        await live.wait_current(30)
        await until(lambda: unreadable().keys() == {letters})
        await secured.lift(READER, no_letters)
        await until(lambda: not unreadable())
        await secured.deny(READER, no_batches)
        await until(lambda: "no right to Read on topic" in unreadable().get(batches, ""))
        await master.produce(Outgoing(topic="reflections", key=b"p", value=b"a reflection"))
        await until(lambda: [one.name for one in live.picture.snapshot(0).playbooks] == ["p"])
        await secured.lift(READER, no_batches)
        await until(lambda: not unreadable())
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await log.close()
        await master.close()
