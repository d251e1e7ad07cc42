"""What becomes of bad records, as the page of the topics says it: each kind, in every topic, on the real services."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path

import pytest

from combee.log.commands.dead_letters import Filters, retry
from combee.process.worker import manifest_cache
from combee.publish import publisher
from combee_schemas import topics
from combee_schemas.base import KIB
from combee_schemas.codec import VERSIONS_AHEAD, CodecError, encode
from combee_schemas.dead_letter import HEAD_BYTES, DeadLetter
from combee_schemas.errors import OtherVersionError
from combee_schemas.outcome import Outcome, OutcomeStatistics
from combee_schemas.records import ATTEMPT_HEADER, PROOF_HEADER, UNREAD_HEADER, Outgoing
from combee_schemas.topics import BY_NAME, TOPICS, AnyTopic
from combee_schemas.trace import Trace
from combee_schemas.upcasts import UPCASTS
from support import ledger
from support.archives import archived, ledger_of, restored
from support.deployment import CONTROL, Deployment
from support.everything import everything, learn
from support.hostile import newer, payloads
from support.ledger import NAME, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls", "quick_services")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "topics.md"
EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
KEYS = (b"guards/hostile", None, b"\xff\xfe", b"")
UNPACKED = 2 * KIB * KIB
TOO_LARGE = "too large once unpacked: a compressed key, value or header"

Values = Callable[[AnyTopic], list[bytes | None]]


@pytest.fixture
def quick_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "POLL_S", 0.005)
    monkeypatch.setattr(manifest_cache, "ARRIVES_S", 0.02)


# ---- the kinds


def named(*names: str) -> Values:
    return lambda topic: [payloads(topic.message)[name] for name in names]


def examples(*, of: Callable[[AnyTopic, str], bool]) -> Values:
    """Return the good messages whose type and topic are as wanted, each at its newest version."""

    def values(topic: AnyTopic) -> list[bytes | None]:
        kinds = [folder for folder in sorted(EXAMPLES.iterdir()) if of(topic, folder.name)]
        return [
            path.read_bytes() for folder in kinds for path in sorted(max(folder.iterdir()).glob("*.msgpack"))
        ]

    return values


def is_own(topic: AnyTopic, kind: str) -> bool:
    return kind in {one.type for one in (topic.message, *topic.beside)}


OLDER = [
    kind
    for kind in {topic.message for topic in TOPICS}
    if kind.version_number > 1 and (kind.type, kind.version_number - 1) not in UPCASTS
]
KINDS: Mapping[str, Values] = {
    "bytes that are no msgpack": named(
        "random",
        "never used byte",
        "json",
        "truncated",
        "trailing bytes",
        "bad utf-8",
        "surrogate",
        "ext",
        "ext of nothing",
        "timestamp",
    ),
    "no bytes": named("empty"),
    "no value (a tombstone)": named("tombstone"),
    "not our envelope": named(
        "nil",
        "number",
        "list",
        "map",
        "no body",
        "no version",
        "no type",
        "type is bytes",
        "type is a number",
        "body is a list",
        "body is nil",
    ),
    "an unknown type": named("wrong type", "long type"),
    "a message of another topic": examples(of=lambda topic, kind: not is_own(topic, kind)),
    "a body that the type does not have": named(
        "empty body", "nil as key", "number as key", "list as key", "timestamp in body"
    ),
    "another version: older, or up to 100 ahead": lambda topic: [
        newer(topic.message, n) for n in (1, VERSIONS_AHEAD, *([-1] if topic.message in OLDER else []))
    ],
    "a version that cannot be": named(
        "version 0",
        "version -1",
        "version of no future",
        "version of no near future",
        "version is text",
        "version is a float",
        "version is true",
    ),
    "too many bytes": named("oversized", "oversized text"),
    "nested too deep, or of too many parts": named(
        "deep lists",
        "deep maps",
        "deep body",
        "many lists",
        "array bomb",
        "map bomb",
        "text bomb",
        "bytes bomb",
    ),
    "a compressed batch beyond 8 MiB": lambda _: [None],
    TOO_LARGE: lambda _: [b"\xc1" * UNPACKED, b"\xc1"],
    "nonsense in the headers, and a bad value": named("never used byte"),
}
HEADERS: Mapping[str, tuple[tuple[str, bytes | None], ...]] = {
    "a compressed batch beyond 8 MiB": ((UNREAD_HEADER, b"the batch is too large"),),
    TOO_LARGE: (("x" * 70_000, b"x" * UNPACKED),),
    "nonsense in the headers, and a bad value": (
        ("x", None),
        (UNREAD_HEADER, None),
        (ATTEMPT_HEADER, b"\xff"),
        (PROOF_HEADER, b"\x00" * 1000),
        ("traceparent", b"\xff"),
    ),
}


def records(kind: str, topic: AnyTopic, partitions: int) -> list[Outgoing]:
    return [
        Outgoing(
            topic=topic.name,
            key=b"k" * UNPACKED if kind == TOO_LARGE else KEYS[n % len(KEYS)],
            value=value,
            partition=n % partitions,
            headers=HEADERS.get(kind, ()),
        )
        for n, value in enumerate(KINDS[kind](topic))
    ]


# ---- the services


async def survived(*sent: Outgoing) -> Deployment:
    """Return a deployment that went on learning beside these records, and after a restart."""
    deployment = Deployment(batch_size=5, max_wait_s=5)
    async with everything(deployment):
        await learn(deployment, 0)
        deployment.log.produce_packed(*sent)
        await learn(deployment, 100)
    async with everything(deployment):
        await learn(deployment, 200)
        await deployment.until(lambda: not ledger.behind(deployment.log, {CONTROL: (topics.OUTCOMES,)}))
    return deployment


def buried(deployment: Deployment) -> Counter[tuple[str, bytes | None, str]]:
    """Count the dead letters by the record that each is about."""
    letters: list[DeadLetter] = []
    for record in ledger.records(deployment.log, topics.DEAD_LETTERS):
        with suppress(CodecError, OtherVersionError):  # those that are bad records themselves
            letters.append(topics.DEAD_LETTERS.read(record))
    return Counter((one.origin_topic, one.key, one.sha256) for one in letters)


def fingerprint(record: Outgoing) -> tuple[str, bytes | None, str]:
    key = record.key and record.key[:HEAD_BYTES]  # of such a record the head alone is kept
    return record.topic, key, sha256(record.value or b"").hexdigest()


# ---- the table


def table() -> Mapping[tuple[str, str], str]:
    """Return what the page says, by kind and topic."""
    lines = PAGE.read_text().partition("## Bad records")[2].partition("\n## ")[0].splitlines()
    head, *rows = ([cell.strip() for cell in line.split(" | ")] for line in lines if " | " in line)
    columns = [re.findall(r"`([a-z0-9.-]+)`", cell) for cell in head[1:]]
    others = [topic.name for topic in TOPICS if topic.name not in chain.from_iterable(columns)]
    columns[-1] = columns[-1] or others
    said: dict[tuple[str, str], str] = {}
    for kind, *cells in rows:
        for names, cell in zip(columns, cells, strict=True):
            first, *exceptions = cell.split("; ")
            said |= {(kind, name): first for name in names}
            for exception in exceptions:
                *named, fate = re.split(r", |: ", exception)
                said |= {(kind, name.strip("`")): fate for name in named}
    return said


SAID = table()
STOPPING = [(kind, name) for (kind, name), fate in SAID.items() if fate == "stops"]


def test_the_table_says_of_each_kind_and_topic_what_becomes_of_it() -> None:
    assert SAID.keys() == {(kind, topic.name) for kind in KINDS for topic in TOPICS}
    assert set(SAID.values()) == {"dead letter", "passed over", "stops"}


def test_by_the_table_nothing_that_an_agent_may_write_stops_a_service() -> None:
    assert {SAID[kind, topic.name] for kind in KINDS for topic in TOPICS if topic.is_open} == {"dead letter"}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
async def test_what_becomes_of_a_bad_record_is_what_the_table_says(topic: AnyTopic) -> None:
    partitions = await Deployment().log.partitions(topic.name)
    sent = {kind: records(kind, topic, partitions) for kind in KINDS if SAID[kind, topic.name] != "stops"}
    deployment = await survived(*chain.from_iterable(sent.values()))
    readers = 2 if topic is topics.COMMANDS else 1  # each accounts for what it reads
    wanted = Counter(
        fingerprint(record)
        for kind, ones in sent.items()
        for record in ones * readers
        if SAID[kind, topic.name] == "dead letter"
    )
    assert buried(deployment) == wanted


@pytest.mark.parametrize(("kind", "name"), STOPPING, ids=[name for _, name in STOPPING])
async def test_what_the_table_says_stops_a_service_stops_it_with_the_remedy(kind: str, name: str) -> None:
    topic = BY_NAME[name]
    with pytest.raises(OtherVersionError, match="upgrade it"):
        await survived(*records(kind, topic, 1))


# ---- as large as a record can be


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic.is_open], ids=lambda topic: topic.name)
@pytest.mark.parametrize(
    ("value", "key", "proof"), [(600, 0, 350), (0, 0, 900), (0, 900, 0), (400, 400, 100), (799, 0, 200)]
)
async def test_a_bad_record_becomes_a_dead_letter_wherever_its_bytes_are(
    topic: AnyTopic, value: int, key: int, proof: int
) -> None:
    sent = Outgoing(
        topic=topic.name,
        key=b"k" * key * KIB,
        value=b"\xc1" * value * KIB,
        partition=0,
        headers=((PROOF_HEADER, b"p" * proof * KIB),),
    )
    deployment = await survived(sent)
    (letter,) = ledger.dead_letters(deployment.log)
    assert (letter.origin_topic, letter.size, letter.sha256) == (
        topic.name,
        value * KIB,
        sha256(sent.value or b"").hexdigest(),
    )


# ---- under a foreign key, and on a foreign partition


def good(count: int) -> list[Outgoing]:
    """Return so many reflections, then so many traces."""
    traces = (
        Trace(trace_id=f"f-{n}", playbook=NAME, task="a task", answer=f"answer f{n}") for n in range(count)
    )
    return [*(outgoing(reflection(n)) for n in range(300, 300 + count)), *map(topics.TRACES.record, traces)]


async def test_a_good_trace_or_reflection_counts_whatever_its_key_and_partition() -> None:
    sent = [replace(one, key=KEYS[n % len(KEYS)], partition=n % 2) for n, one in enumerate(good(4))]
    deployment = await survived(*sent)
    assert (ledger.applied(deployment.log), not buried(deployment)) == (15 + len(sent), True)


@pytest.mark.parametrize(
    ("key", "header"), [(b"k" * UNPACKED, b""), (b"k" * 990 * KIB, b""), (None, b"h" * UNPACKED)]
)
async def test_a_good_record_counts_however_large_its_key_or_a_header_is_and_on_a_foreign_partition_too(
    key: bytes | None, header: bytes
) -> None:
    headers = (("x", header),)
    sent = [replace(one, key=key, partition=n % 2, headers=headers) for n, one in enumerate(good(2))]
    deployment = await survived(*sent)
    assert (ledger.applied(deployment.log), not buried(deployment)) == (15 + len(sent), True)


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic.is_open], ids=lambda topic: topic.name)
async def test_what_is_too_large_once_unpacked_stops_no_archive_and_no_restore(
    topic: AnyTopic, tmp_path: Path
) -> None:
    sent = records(TOO_LARGE, topic, await Deployment().log.partitions(topic.name))
    deployment = await survived(*sent, *(replace(one, value=None) for one in sent))
    await archived(deployment.log, tmp_path / "archive")
    there = Deployment(batch_size=5, max_wait_s=5)
    await restored(tmp_path / "archive", there.log)
    assert ledger.records(there.log, topic)
    assert await ledger_of(there.log) == await ledger_of(deployment.log)
    async with everything(there):
        await learn(there, 300)


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic.is_open], ids=lambda topic: topic.name)
async def test_a_retry_of_what_is_too_large_once_unpacked_refuses_it_and_goes_on(topic: AnyTopic) -> None:
    sent = records(TOO_LARGE, topic, await Deployment().log.partitions(topic.name))
    deployment = await survived(*sent)
    decided = await retry(deployment.log, deployment.clock, Filters())
    assert decided.done == []
    assert ["fit in no message" in one.why for one in decided.refused] == [True] * len(sent)


async def test_a_good_outcome_under_a_foreign_key_is_a_dead_letter() -> None:
    good = topics.OUTCOMES.record(Outcome(playbook=NAME, run_id="r-1", success=True))
    sent = [replace(good, key=key, partition=0) for key in KEYS]
    assert buried(await survived(*sent)) == Counter(map(fingerprint, sent))


async def test_an_outcome_on_a_foreign_partition_counts_once_and_with_its_playbook_s_others() -> None:
    deployment = Deployment()
    own = topics.OUTCOMES.record(Outcome(playbook=NAME, run_id="r-0", success=True))
    home = await deployment.log.partition_for(topics.OUTCOMES.name, NAME.encode())
    runs = [replace(own, value=encode(Outcome(playbook=NAME, run_id=f"r-{n}"))) for n in range(1, 4)]
    async with deployment.running([CONTROL]):
        await deployment.log.produce(own)
        await deployment.log.produce(*(replace(one, partition=1 - home) for one in (*runs, *runs)))
        await deployment.until(lambda: not ledger.behind(deployment.log) and counted(deployment) == 4)
    async with deployment.running([CONTROL]):
        await deployment.log.produce(own, *runs)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    written = ledger.records(deployment.log, topics.OUTCOME_STATISTICS)
    assert (counted(deployment), {record.partition for record in written}) == (4, {home})


def counted(deployment: Deployment) -> int:
    """Return how many runs the newest statistics have."""
    found = ledger.messages(deployment.log, topics.OUTCOME_STATISTICS, OutcomeStatistics)
    return found[-1].unplaced if found else 0
