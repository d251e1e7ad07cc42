"""What was learned is learned otherwise, judged, mended, moved: on real Kafka, beside services that run on."""

import asyncio
import json
import signal
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiokafka
import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.assembly.local.stack import model_environment
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import Tracker
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from combee_sim.family.falsehoods import opposite
from combee_sim.family.family import latent, one_each
from combee_sim.family.quantities import QUANTITIES
from support.broker import Broker
from support.cli import Ended, all_gone, combee, descendants, start
from support.running import Running, created, running_stack

pytestmark = pytest.mark.timeout(300)
NAME = "tests/story"
BATCH = 20
STALL_S = 45.0


@dataclass(slots=True, kw_only=True)
class Story:
    """A deployment that has learned something, and the command line beside it."""

    folder: Path
    servers: str
    prefix: str
    running: Running
    questions: Path
    model: Mapping[str, str] = field(default_factory=dict)

    async def told(self, *arguments: str, prefix: str = "", **layout: str) -> Ended:
        env = {"COMBEE_BOOTSTRAP_SERVERS": self.servers, "COMBEE_TOPIC_PREFIX": prefix or self.prefix}
        env |= layout
        return await combee(*arguments, "--json", data_dir=self.folder / "data", **env, **self.model)

    async def said(self, *arguments: str, prefix: str = "", **layout: str) -> dict[str, Any]:
        ended = await self.told(*arguments, prefix=prefix, **layout)
        assert ended.code == 0, ended.err
        return ended.json()

    @asynccontextmanager
    async def log(self, prefix: str) -> AsyncIterator[KafkaLog]:
        """Open the log under a prefix; its topics are created where they are missing."""
        async with created(load_settings(topic_prefix=prefix), self.servers) as log:
            yield log

    async def is_clean(self, *prefixes: str) -> bool:
        """Say what ``combee ledger`` says."""
        reports = []
        for prefix in prefixes or [self.prefix]:
            async with self.log(prefix) as log:
                reports.append(await audit(log))
        return all(report.good and report.applied for report in reports)

    async def learn(self, reflections: Sequence[Reflection]) -> None:
        log = self.running.log
        async with Tracker(log, NAME, SystemClock()).running() as tracker:
            await log.produce(*map(outgoing, reflections))
            ids = {reflection.reflection_id: reflection for reflection in reflections}
            await self.running.learning().settle(tracker, ids, stall_s=STALL_S)


@asynccontextmanager
async def story(servers: str, prefix: str, folder: Path, questions: Path, *sim: str) -> AsyncIterator[Story]:
    roles = ("reflect", "scan", "shuffle", "publish")
    settings = {"batch_size": BATCH, "sim_arguments": sim, "latency": "0", "roles": roles}
    async with running_stack(servers, prefix, folder / "stack", **settings) as running:  # type: ignore[arg-type]
        url = model_environment(running.supervisor)["base_url"]
        model = {"COMBEE_MODEL": "simulated", "COMBEE_BASE_URL": url, "COMBEE_API_KEY": "simulated"}
        yield Story(
            folder=folder, servers=servers, prefix=prefix, running=running, questions=questions, model=model
        )


def exam(path: Path) -> Path:
    """Write one question of the built-in family for each quantity."""
    asked = one_each(Random(1))
    rows = [{"context": "Site report.", "question": one.text, "target": one.target} for one in asked]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def taught(numbers: Iterable[int], shop: str = "shop") -> list[Reflection]:
    """Return what is true of the quantities with these numbers."""
    return [_reflection(f"{shop}-{n}", latent(QUANTITIES[n]).sentence(), shop) for n in numbers]


def mistaught(numbers: Iterable[int]) -> list[Reflection]:
    """Return the contrary, from the source ``bad``."""
    return [_reflection(f"bad-{n}", str(opposite(latent(QUANTITIES[n]).sentence())), "bad") for n in numbers]


def _reflection(reflection_id: str, lesson: str, source: str) -> Reflection:
    return Reflection(
        reflection_id=reflection_id, playbook=NAME, key_insight=lesson, source=Source(name=source)
    )


async def ends(log: KafkaLog) -> dict[str, dict[int, int]]:
    return {topic.name: dict(await log.ends(topic.name)) for topic in topics.TOPICS}


async def generations(servers: str, prefix: str) -> dict[str, int]:
    """Return the generations of a prefix's groups, which rise when anybody joins or leaves, from the broker's log."""
    reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await reader.start()
    try:
        internal = "__consumer_offsets"
        await reader._client.force_metadata_update()
        numbers = reader._client.cluster.partitions_for_topic(internal) or set()
        places = [aiokafka.TopicPartition(internal, number) for number in numbers]
        reader.assign(places)
        await reader.seek_to_beginning(*places)
        until = await reader.end_offsets(places)
        known: dict[str, int] = {}
        while any([await reader.position(place) < until[place] for place in places]):
            for records in (await reader.getmany(timeout_ms=500)).values():
                for record in records:
                    if record.value is None or record.key[:2] != b"\x00\x02":  # of a group, not of an offset
                        continue
                    group = record.key[4:].decode()
                    (length,) = struct.unpack_from(">h", record.value, 2)
                    (generation,) = struct.unpack_from(">i", record.value, 4 + length)
                    if group.startswith(f"{prefix}."):
                        known[group] = generation
        return known
    finally:
        await reader.stop()


async def _compared(story: Story, to: str, *variants: str) -> dict[str, dict[str, Any]]:
    """Replay with variants; what changes nothing is free and the same, production is not touched, twice is once."""
    before = await ends(story.running.log), await generations(story.servers, story.prefix)
    assert before[1], "the services are in groups"
    given = [part for variant in variants for part in ("--variant", variant)]
    command = ("replay", NAME, "--to", to, *given, "--questions", str(story.questions), "--yes")
    compared = await story.said(*command)
    runs = {run["variant"]: run for run in compared["runs"]}
    assert list(runs) == ["original", *(variant.partition(":")[0] for variant in variants)]
    original, same = runs["original"], runs["same"]
    assert same["reused_calls"] == same["model_calls"] == original["model_calls"] > 0
    assert same["entries"] == original["entries"]
    assert (same["difference"], same["score"]) == (0, original["score"])
    assert await story.is_clean(*(run["prefix"] for run in compared["runs"]))
    shadow = await _written(story, same["prefix"])
    assert await story.said(*command) == compared
    assert await _written(story, same["prefix"]) == shadow, "nothing is done twice"
    assert await ends(story.running.log) == before[0]
    assert await generations(story.servers, story.prefix) == before[1]
    return runs


async def _written(story: Story, prefix: str) -> dict[str, dict[int, int]]:
    """Return where the topics of a shadow end."""
    async with story.log(prefix) as log:
        return await ends(log)


async def test_a_bad_source_is_found_taken_back_and_what_is_left_moves_elsewhere(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """A correction outlives its source's revocation, so the playbook is learned anew without it."""
    exam_file, clean_file, archive = (tmp_path / name for name in ("exam.jsonl", "clean.json", "archive"))
    async with story(kafka.bootstrap_servers, topic_prefix, tmp_path, exam(exam_file)) as deployment:
        for first in range(0, 60, BATCH):
            await deployment.learn(taught(range(first, first + BATCH)))
        bad = mistaught(range(BATCH))
        await deployment.learn(bad)
        await deployment.learn(taught(range(BATCH, 2 * BATCH), "other"))

        found = await deployment.said("bisect", NAME, "--questions", str(exam_file), "--good", "3")
        assert (found["version"], found["fell_by"]["high"] < 0) == (4, True)
        assert set(found["reflections"]) == {reflection.reflection_id for reflection in bad}
        revoked = await deployment.said("playbook", "revoke", NAME, *found["reflections"])
        assert set(revoked["revoked"]) == set(found["reflections"])
        mended = await deployment.said("evaluate", NAME, "--questions", str(exam_file), "--against", "4")
        assert mended["verdict"] == "better", "what the source corrected says again what it said before"
        assert await deployment.is_clean()

        to, variants = f"{topic_prefix}-mend", ("same", "clean:without=source:bad")
        said = await _stopped(deployment, signal.SIGINT, f"{to}-same-0", to, *variants)
        assert "Traceback" not in said
        await _stopped(deployment, signal.SIGKILL, f"{to}-clean-0", to, *variants)
        runs = await _compared(deployment, to, *variants)
        clean = runs["clean"]
        assert clean["difference_low"] > 0
        exported = ("playbook", "export", NAME, "--format", "json", "--out", str(clean_file))
        await deployment.told(*exported, prefix=clean["prefix"])
        await deployment.said("playbook", "import", NAME, str(clean_file))
        worth = await deployment.said("evaluate", NAME, "--questions", str(exam_file), "--against", "4")
        assert (worth["verdict"], worth["score"]) == ("better", pytest.approx(clean["score"], abs=1e-3))
        assert await deployment.is_clean()

        await deployment.said("archive", "--prefix", "--to", str(archive))
        there = f"{topic_prefix}-moved"
        layout = ("--partitions", "5", "--scan-partitions", "3")
        await deployment.said("restore", str(archive), "--to", there, *layout)
        moved = {"prefix": there, "COMBEE_PARTITIONS": "5", "COMBEE_SCAN_PARTITIONS": "3"}
        assert (await deployment.said("ledger", **moved))["violations"] == []
        shown = await deployment.said("playbook", "show", NAME)
        there_shown = await deployment.said("playbook", "show", NAME, **moved)
        assert {name for name in shown if shown[name] != there_shown[name]} == {
            "history_offset",
            "manifest_offset",
        }


async def test_two_ways_to_learn_are_compared_on_the_live_stream_and_the_better_one_is_adopted(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    line, own = f"{NAME}@small", BATCH // 2
    questions = exam(tmp_path / "exam.jsonl")
    async with story(kafka.bootstrap_servers, topic_prefix, tmp_path, questions) as deployment:
        await deployment.learn(taught(range(BATCH)))
        made = await deployment.said("branch", NAME, "--as", "small", "--set", f"batch_size={own}")
        assert (made["name"], made["version"], made["changed"]) == (line, 1, True)
        await deployment.learn(taught(range(BATCH, 3 * BATCH)))
        await _until_version(deployment, line, 1 + 2 * BATCH // own)

        rows = {row["name"]: row for row in (await deployment.said("status"))["playbooks"]}
        assert list(rows) == [NAME, line]
        assert rows[line]["branch"]["instead_of"] == {"batch_size": BATCH}
        assert [row["version"] for row in rows.values()] == [3, 1 + 2 * BATCH // own]
        lines = json.loads((await deployment.told("branch", NAME)).out)
        assert [row["reflections"] for row in lines] == [2 * BATCH, 2 * BATCH], "both learned from all of it"
        both = await deployment.said("playbook", "diff", NAME, line)
        assert (both["from_name"], both["name"]) == (NAME, line)
        assert (await deployment.told("playbook", "delete", NAME, "--yes")).code == 1

        adopted = await deployment.said("adopt", line)
        assert (adopted["version"], adopted["adopted"]["line"]) == (4, line)
        assert await deployment.said("adopt", line) == {**adopted, "changed": False}
        shown = await deployment.said("playbook", "show", NAME)
        learned = next(entry for entry in shown["entries"] if f"shop-{BATCH}" in entry["evidence"])
        why = await deployment.said("why", learned["id"], "--playbook", NAME)
        assert line in {change["playbook"] for change in why["changes"]}
        assert f"shop-{BATCH}" in {source["reflection_id"] for source in why["reflections"]}
        assert await deployment.is_clean()

        assert (await deployment.said("playbook", "delete", line, "--yes"))["deleted"]
        await deployment.learn(taught(range(BATCH), "other"))
        assert [row["name"] for row in (await deployment.said("status"))["playbooks"]] == [NAME]
        assert (await deployment.said("ledger"))["violations"] == []
        assert await deployment.is_clean()


async def _until_version(story: Story, line: str, number: int) -> None:
    async with (
        asyncio.timeout(STALL_S),
        aclosing(story.running.log.follow(topics.HISTORY.name, {})) as changes,
    ):
        async for records in changes:
            if any(version.version == number for version in topics.HISTORY.under(line, records or ())):
                return


async def _stopped(story: Story, sign: signal.Signals, shadow: str, to: str, *variants: str) -> str:
    """Stop a replay once a shadow has a first version; nothing that it started stays."""
    given = [part for variant in variants for part in ("--variant", variant)]
    env = {"COMBEE_BOOTSTRAP_SERVERS": story.servers, "COMBEE_TOPIC_PREFIX": story.prefix, **story.model}
    process = await start("replay", NAME, "--to", to, *given, "--yes", data_dir=story.folder / "data", **env)
    async with (
        asyncio.timeout(STALL_S),
        story.log(shadow) as log,
        aclosing(log.follow(topics.HISTORY.name, {})) as changes,
    ):
        async for records in changes:
            if records:
                break
    started = descendants(process.pid)
    assert started
    process.send_signal(sign)
    _, err = await process.communicate()
    assert process.returncode in {-sign, 128 + sign}
    assert await all_gone(started) == []
    return err.decode()
