"""Somebody is forgotten on a real broker: its raw files are searched, decompressed, before and afterwards."""

import asyncio
from pathlib import Path

import aiokafka
import pytest

from combee.adapters.ports import Outgoing
from combee.log.history import newest_playbooks
from combee.process.settings.loading import load_settings
from combee.sdk.cache import DiskCache
from combee_schemas import topics
from combee_schemas.playbook import NO_LABEL
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from combee_schemas.trace import Trace
from support.broker import Broker, segments
from support.ledger import read_all
from support.running import (
    PLAYBOOK,
    Running,
    nothing_waits,
    opened,
    running_stack,
    until_applied,
)
from support.site import Site

pytestmark = pytest.mark.timeout(600)
CODECS = ("gzip", "snappy", "lz4", "zstd")
HONEST, STALL_S, DELETED_S = 12, 60.0, 60.0
KEPT_IN = frozenset(("reflections", "traces", "scan.0", "updates", "history", "playbooks", "dead-letters"))
"""Where somebody's name comes to stand: 'a trace leaves it in six topics, two kept for ever'."""


async def lived(site: Site, running: Running) -> None:
    """Let it learn from the subject's runs, in every codec that a producer may use, and from others."""
    log = running.log
    lesson = f"Write to {site.subject} before you refund."
    traces = [
        Trace(trace_id=f"t-{n}", playbook=PLAYBOOK, task=f"a refund for {site.subject}", answer="0")
        for n in range(2)
    ]
    await log.produce(*map(topics.TRACES.record, traces))
    await log.produce(
        *(
            outgoing(Reflection(reflection_id=f"r-{n}", playbook=PLAYBOOK, key_insight=f"Lesson number {n}."))
            for n in range(HONEST)
        ),
        Outgoing(topic="reflections", key=PLAYBOOK.encode(), value=f"no record of {site.subject}".encode()),
    )
    for codec in CODECS:
        said = Reflection(reflection_id=f"by-{codec}", playbook=PLAYBOOK, key_insight=f"{lesson} ({codec})")
        record = topics.REFLECTIONS.record(said)
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=site.servers, compression_type=codec)
        await producer.start()
        try:
            partition = await log.partition_for("reflections", record.key or b"")
            await producer.send_and_wait(
                f"{site.prefix}.reflections", record.value, key=record.key, partition=partition
            )
        finally:
            await producer.stop()
    await until_applied(log, HONEST + len(CODECS) + len(traces))
    await nothing_waits(log, STALL_S)


async def texts(site: Site, prefix: str) -> str:
    """Return all versions of all playbooks."""
    async with opened(load_settings(topic_prefix=prefix), site.servers) as log:
        records = await read_all(log, topics.HISTORY)
    return "\n".join(topics.HISTORY.read(record).model_dump_json() for record in records)


async def test_forgotten_it_is_in_no_raw_file_and_no_rollback_brings_it_back(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    if segments(kafka) is None:
        pytest.skip("this machine does not reach the files of a broker elsewhere")
    site, there = Site(kafka, topic_prefix, tmp_path), f"{topic_prefix}-left"
    file, cache = tmp_path / "named.archive", tmp_path / "cache"
    async with running_stack(
        site.servers,
        site.prefix,
        tmp_path / "a",
        latency="0",
        max_wait_s=1,
        batch_size=6,
    ) as running:
        await lived(site, running)
        snapshot = (await newest_playbooks(running.log))[PLAYBOOK]
        DiskCache(cache).save(PLAYBOOK, NO_LABEL, snapshot)
        await site.json("archive", "--prefix", "--to", str(file))
        counted = await site.json("forget", "--subject-file", "-", "--dry-run", stdin=site.subject)
    before = await site.json("ledger")
    (erased,) = counted["erased"].values()
    assert (erased["dropped"]["traces"], erased["dropped"]["reflections"]) == (2, 2 + len(CODECS) + 1)

    # The positive control: it is found everywhere it is said to be, in every codec.
    found = site.found()
    kept_in = {name.removeprefix(f"{site.prefix}.").rsplit("-", 1)[0] for name, _ in found}
    assert kept_in >= KEPT_IN
    assert {codec for _, codec in found} == {"none", "ours", *CODECS}
    assert {name for name, codec in found if codec == "ours"} >= {
        file.name,
        f"{PLAYBOOK.replace('/', '%2F')}@latest.json",
    }
    assert site.subject in await texts(site, site.prefix)

    done = await site.json(
        *("forget", "--subject-file", "-", "--to", there, "--archive", str(file)),
        *("--cache-dir", str(cache), "--yes"),
        stdin=site.subject.upper(),
    )
    assert [row["entries"] for row in done["erased"].values()] == [erased["entries"]] * 2
    async with asyncio.timeout(DELETED_S):
        while left := site.found():
            assert {name.partition(".")[0] for name, _ in left} == {site.prefix}, left
            await asyncio.sleep(0.5)

    after = await site.json("ledger", prefix=there)
    assert (after["violations"], after["lost"]) == ([], 0)
    assert after["reflections"] == before["reflections"] - 2 - len(CODECS)
    (told,) = after["erasures"]
    assert (told["selector"], told["issued_by"].partition(":")[0]) == ("subject", "user")

    async with running_stack(site.servers, there, tmp_path / "b", latency="0", roles=("publish",)) as running:
        for number in (1, snapshot.version):
            await site.json("playbook", "rollback", PLAYBOOK, str(number), prefix=there)
    assert site.subject not in await texts(site, there)
    assert "Lesson number 1." in await texts(site, there)
    assert site.found() == set()
    assert (await site.run("ledger", prefix=site.prefix)).code != 0, "the old prefix is gone"
