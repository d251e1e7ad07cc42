import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from combee.adapters.embedded_kafka import open_user_broker
from combee.adapters.embedded_kafka.data_dir import RunState
from combee.adapters.embedded_kafka.node import node_process
from combee.adapters.embedded_kafka.process import BrokerProcess
from combee.adapters.kafka import is_ready
from support.faults.kafka import FragileKafka

TOPIC = "lessons"
DEADLINE_S = 30

# A command that is killed leaves no chance to clean up; only the guard is left then.
COMMAND = """
import asyncio, os, pathlib, sys
from combee.adapters.embedded_kafka import EmbeddedKafka, open_user_broker
from combee.adapters.kafka import is_ready
async def main():
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "own":
        await EmbeddedKafka(folder, ready=is_ready, env=os.environ).start()
        print(flush=True)
        await asyncio.sleep(60)
    async with open_user_broker(folder, ready=is_ready, env=os.environ) as address:
        print(address, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""

Make = Callable[..., FragileKafka]


@pytest.fixture
def make(tmp_path: Path, machine_env: dict[str, str]) -> Make:
    def made(nodes: int = 1) -> FragileKafka:
        return FragileKafka(tmp_path / "data", ready=is_ready, env=machine_env, nodes=nodes)

    return made


async def create(address: str, topic: str = TOPIC, replicas: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])
        assert answer.topic_errors[0][1] == 0
    finally:
        await admin.close()


@asynccontextmanager
async def producing(address: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=address, acks="all", enable_idempotence=True, request_timeout_ms=DEADLINE_S * 1000
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def write(producer: AIOKafkaProducer, numbers: Sequence[int]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        sent = [await producer.send(TOPIC, str(number).encode()) for number in numbers]
        await asyncio.gather(*sent)


async def read(address: str, count: int) -> list[int]:
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            return [int((await consumer.getone()).value) for _ in range(count)]
    finally:
        await consumer.stop()


def process_of(data_dir: Path, node: int = 1) -> BrokerProcess:
    run = RunState.load(data_dir)
    assert run
    return node_process(data_dir, node, run.pids[node])


async def command(kind: str, folder: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, kind, folder, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    async with asyncio.timeout(60):
        assert await process.stdout.readline()
    return process


async def test_what_was_acknowledged_outlives_kill_minus_9_and_a_second_start_and_clients_find_the_broker_again(
    make: Make,
) -> None:
    async with make() as kafka:
        await create(kafka.bootstrap_servers)
        async with producing(kafka.bootstrap_servers) as producer:
            await write(producer, range(1000))
            kafka.kill()
            await kafka.restart_node(1)
            await write(producer, range(1000, 1100))

        assert await read(kafka.bootstrap_servers, 1100) == list(range(1100))

    async with make() as second:
        assert second.bootstrap_servers == kafka.bootstrap_servers
        assert await read(second.bootstrap_servers, 1100) == list(range(1100))


async def test_a_broker_outlives_the_command_that_started_it_while_another_uses_it_whose_records_the_next_one_reads(
    tmp_path: Path, machine_env: dict[str, str]
) -> None:
    starter = await command("user", tmp_path)
    process = process_of(tmp_path)
    async with open_user_broker(tmp_path, ready=is_ready, env=machine_env) as address:
        starter.kill()
        await starter.communicate()

        assert process_of(tmp_path) == process
        await create(address)
        async with producing(address) as producer:
            await write(producer, range(10))
        assert process.alive()

    assert not process.alive()

    async with open_user_broker(tmp_path, ready=is_ready, env=machine_env) as address:
        assert await read(address, 10) == list(range(10))


@pytest.mark.parametrize("kind", ["own", "user"])
async def test_a_broker_ends_when_the_only_command_that_used_it_is_killed(tmp_path: Path, kind: str) -> None:
    starter = await command(kind, tmp_path)
    process = process_of(tmp_path)

    starter.kill()
    await starter.communicate()

    assert await process.wait_ended(DEADLINE_S)
