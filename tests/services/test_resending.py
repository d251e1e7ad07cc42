"""Dead letters sent again: each reaches the playbook once, whatever is sent, forged or killed in between."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from combee.adapters.ports import Outgoing, PoisonError
from combee.core.log.dead_letters.resending import refusal
from combee.core.log.ledger import LedgerReport
from combee.core.names.identity import identity_of
from combee.log.commands import dead_letters
from combee.log.commands.dead_letters import Refused
from combee.log.inspection import audit
from combee.log.inspection.dead_letters import StoredLetter, resolutions
from combee.log.inspection.learned import progress_of
from combee.log.inspection.tracker import Tracker
from combee.shuffle.attempts import Attempts
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.codec import encode
from combee_schemas.dead_letter import (
    Attempt,
    DeadLetter,
    LetterId,
    Resolution,
    attempt_headers,
    claimed_attempt,
)
from combee_schemas.model import Prompt
from combee_schemas.outcome import Outcome, OutcomeStatistics
from combee_schemas.records import IDENTITY_HEADER
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import CONTROL, ROLES, Deployment
from support.hostile import newer
from support.ledger import NAME, lessons, outgoing, records, reflection
from support.models import ScriptedModel, echo
from support.shuffling import shuffling

pytestmark = pytest.mark.usefixtures("quick_polls")

BATCH = 4
ALL = lessons(range(BATCH))


def unusable(_: Prompt) -> Mapping[str, Any]:
    raise PoisonError("no use")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AGAIN_S", 0.0)


def broken() -> Deployment:
    """Return a deployment whose model's replies are of no use."""
    return Deployment(model=ScriptedModel(unusable), batch_size=BATCH)


def learned(deployment: Deployment) -> set[str]:
    return {entry.content for entry in ledger.latest(deployment.log).entries}


async def settled(deployment: Deployment, condition: Callable[[], object]) -> None:
    def done() -> bool:
        deployment.advance(0)  # as turns come round by themselves
        return bool(condition()) and not ledger.behind(deployment.log)

    await deployment.until(done)


async def buried(deployment: Deployment) -> None:
    """Publish a batch and see all of it dead-lettered."""
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(BATCH)))
        await settled(deployment, lambda: len(ledger.dead_letters(deployment.log)) == BATCH)


async def open_letters(deployment: Deployment) -> list[StoredLetter]:
    decided = await resolutions(deployment.log)
    return [one for one in await ledger.stored_letters(deployment.log) if one.id not in decided]


async def retry(deployment: Deployment, found: list[StoredLetter]) -> tuple[list[Resolution], list[Refused]]:
    return await dead_letters.resend(deployment.log, deployment.clock, found, {})


async def judged(deployment: Deployment) -> LedgerReport:
    return await audit.audit(deployment.log)


async def test_reflections_sent_again_end_in_the_playbook_and_count_once() -> None:
    deployment = broken()
    await buried(deployment)
    before = await judged(deployment)
    assert (before.good, before.dead_lettered, before.applied) == (True, BATCH, 0)

    decisions, refused = await retry(deployment, await open_letters(deployment))
    assert ([one.attempt for one in decisions], refused) == ([1] * BATCH, [])
    waiting = await judged(deployment)
    assert (waiting.good, waiting.dead_lettered, waiting.pending) == (True, 0, BATCH)

    deployment.model.answer = echo
    async with deployment.running():
        await settled(deployment, lambda: len(ledger.versions(deployment.log)) == 2)
    after = await judged(deployment)
    assert (after.good, after.applied, after.dead_lettered) == (True, BATCH, 0), after.violations
    assert learned(deployment) == ALL
    assert await open_letters(deployment) == []


async def test_the_tracker_counts_a_reflection_sent_again_as_dead_and_then_as_applied() -> None:
    deployment = broken()
    sent = {f"r-{n}": reflection(n) for n in range(BATCH)}
    async with Tracker(deployment.log, NAME, deployment.clock).running() as tracker:
        await buried(deployment)
        await deployment.until(lambda: progress_of(tracker, sent).dead == BATCH)
        assert progress_of(tracker, sent).applied == 0
        await retry(deployment, await open_letters(deployment))
        deployment.model.answer = echo
        async with deployment.running():
            await deployment.until(lambda: progress_of(tracker, sent).applied == BATCH)
        assert (progress_of(tracker, sent).dead, tracker.unsettled(sent)) == (0, [])


async def test_the_bytes_are_untouched_and_the_headers_say_which_attempt_it_is() -> None:
    deployment = broken()
    await buried(deployment)
    (first, *_) = await open_letters(deployment)
    await retry(deployment, [first])
    old, new = records(deployment.log, topics.REFLECTIONS)[0], records(deployment.log, topics.REFLECTIONS)[-1]
    assert (new.key, new.value, new.partition) == (old.key, old.value, old.partition)
    assert claimed_attempt(new.headers) == Attempt(number=1, letter=first.id)


async def test_copied_for_a_replay_a_reflection_sent_again_counts_under_the_id_that_it_had() -> None:
    deployment = broken()
    sent = [reflection(n) for n in range(BATCH)]
    copies = [replace(outgoing(one), headers=((IDENTITY_HEADER, own_id(one).encode()),)) for one in sent]
    async with deployment.running():
        await deployment.log.produce(*copies)
        await settled(deployment, lambda: len(ledger.dead_letters(deployment.log)) == BATCH)
        deployment.model.answer = echo
        decided, refused = await retry(deployment, await open_letters(deployment))
        assert (len(decided), refused) == (BATCH, [])
        await settled(deployment, lambda: len(ledger.versions(deployment.log)) == 2)
    manifest = ledger.messages(deployment.log, topics.BATCHES, Batch)[-1]
    assert {member.reflection_id for member in manifest.members} == set(map(own_id, sent))


def own_id(one: Reflection) -> str:
    return identity_of(one.reflection_id, "shop")


async def test_sending_the_same_letter_again_has_no_second_effect() -> None:
    deployment = broken()
    await buried(deployment)
    found = await open_letters(deployment)
    await retry(deployment, found)
    await retry(deployment, found)  # killed before its decisions were in the log, say, and given again
    deployment.model.answer = echo
    async with deployment.running():
        await settled(deployment, lambda: len(ledger.versions(deployment.log)) == 2)
        await retry(deployment, found)
        await settled(deployment, lambda: True)
    after = await judged(deployment)
    assert (after.good, after.applied, after.double) == (True, BATCH, 0), after.violations


async def test_what_fails_again_is_a_dead_letter_again_and_has_a_third_chance() -> None:
    deployment = broken()
    await buried(deployment)
    await retry(deployment, await open_letters(deployment))
    async with deployment.running():
        await settled(deployment, lambda: len(ledger.dead_letters(deployment.log)) == 2 * BATCH)
    again = await open_letters(deployment)
    assert [one.letter.attempts for one in again if one.letter] == [2] * BATCH
    report = await judged(deployment)
    assert (report.good, report.dead_lettered) == (True, BATCH)
    await retry(deployment, again)
    deployment.model.answer = echo
    async with deployment.running():
        await settled(deployment, lambda: len(ledger.versions(deployment.log)) == 3)
    after = await judged(deployment)
    assert (after.good, after.applied) == (True, BATCH), after.violations


def forged(number: int, attempt: int, letter: int) -> Outgoing:
    plain = outgoing(reflection(number))
    claim = Attempt(number=attempt, letter=LetterId(partition=0, offset=letter))
    headers = attempt_headers(claim)
    return Outgoing(topic=plain.topic, key=plain.key, value=plain.value, headers=headers)


async def applied_then_forged() -> Deployment:
    """Have a batch applied and another record dead-lettered; then claim attempts that nothing proves."""
    deployment = Deployment(batch_size=BATCH)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(BATCH)))
        await deployment.log.produce(Outgoing(topic=topics.REFLECTIONS.name, value=b"\xc1", partition=0))
        await settled(deployment, lambda: ledger.applied(deployment.log) == BATCH)
        await settled(deployment, lambda: ledger.dead_letters(deployment.log))
        await deployment.log.produce(*(forged(n, 1, letter=n) for n in range(BATCH)), forged(0, 9999, 10**9))

        def over() -> bool:
            deployment.advance(1)  # what is believed to be an attempt of its own waits for more
            return not ledger.behind(deployment.log)

        await deployment.until(over)
    return deployment


async def test_a_forged_header_makes_nothing_count_twice() -> None:
    deployment = await applied_then_forged()
    report = await judged(deployment)
    assert (report.good, report.applied, report.double) == (True, BATCH, 0), report.violations
    assert len(ledger.versions(deployment.log)) == 1


async def test_without_the_proof_the_ledger_names_the_attempts_that_nothing_proves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def believed(
        _self: Attempts, claim: Attempt, _record: object, reflection: Reflection
    ) -> tuple[int, str]:
        return claim.number, reflection.playbook

    monkeypatch.setattr(Attempts, "proven", believed)
    report = await judged(await applied_then_forged())
    assert report.double
    assert any(one.startswith("attempt:") and "without a dead letter" in one for one in report.violations)


@pytest.mark.parametrize(
    "wrong",
    [
        {"record_id": "r-2"},
        {"playbook": "another"},
        {"attempts": 2},
        {"sha256": sha256(b"other bytes").hexdigest()},
        {"origin_topic": "traces"},
    ],
    ids=str,
)
async def test_a_dead_letter_of_something_else_proves_nothing(wrong: dict[str, Any]) -> None:
    assert await attempts_with(wrong) == [0]


async def test_a_dead_letter_of_the_attempt_before_proves_a_claim() -> None:
    assert await attempts_with({}) == [1]


async def attempts_with(wrong: dict[str, Any]) -> list[int]:
    deployment = Deployment(batch_size=1)
    plain = outgoing(reflection(1))
    letter = DeadLetter(
        **{
            "origin_topic": "reflections",
            "origin_partition": 0,
            "origin_offset": 0,
            "value": plain.value,
            "sha256": sha256(plain.value or b"").hexdigest(),
            "service": "scan",
            "reason": "",
            "record_id": "r-1",
            "playbook": NAME,
            **wrong,
        }
    )
    await deployment.log.produce(Outgoing(topic="dead-letters", value=encode(letter)), forged(1, 1, letter=0))
    async with shuffling(deployment.log, deployment.clock, batch_size=1) as rig:
        await rig.step()
    return [member.attempt for batch in ledger.batches(deployment.log) for member in batch.members]


async def test_a_shuffler_that_starts_again_makes_the_same_plan_of_a_retry() -> None:
    plans: list[bytes | None] = []
    for deaths in range(2):
        deployment = broken()
        await buried(deployment)
        await retry(deployment, await open_letters(deployment))
        settings = {"batch_size": BATCH + 1, "max_wait_s": 30}
        for _ in range(deaths):
            async with shuffling(deployment.log, deployment.clock, **settings) as rig:
                await rig.step()  # and dies with the window open
        async with shuffling(deployment.log, deployment.clock, **settings) as rig:
            await rig.step()
            deployment.clock.advance(31)
            await rig.step()
        plans.append(records(deployment.log, topics.BATCHES)[-1].value)
        assert [m.attempt for m in ledger.batches(deployment.log)[-1].members] == [1] * BATCH
    assert plans[0] == plans[1]


async def test_a_trace_sent_again_becomes_its_one_reflection() -> None:
    deployment = Deployment(model=ScriptedModel(unusable), batch_size=1)
    trace = Trace(trace_id="t", playbook=NAME, task="a task", answer="forty-two")
    async with deployment.running():
        await deployment.log.produce(Outgoing(topic="traces", key=b"t", value=encode(trace)))
        await settled(deployment, lambda: ledger.dead_letters(deployment.log))
        deployment.model.answer = echo
        found = await open_letters(deployment)
        for _ in range(2):
            await retry(deployment, found)
            await settled(deployment, lambda: ledger.applied(deployment.log) == 1)
    assert learned(deployment) == {"learned: forty-two"}
    assert len(records(deployment.log, topics.REFLECTIONS)) == 1


async def test_bytes_that_a_mended_deploy_can_read_end_in_the_playbook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = Deployment(batch_size=1)
    with monkeypatch.context() as broken_deploy:
        broken_deploy.setattr(Reflection, "max_bytes", 10)
        async with deployment.running():
            await deployment.log.produce(outgoing_raw(reflection(0)))
            await settled(deployment, lambda: ledger.dead_letters(deployment.log))
            await retry(deployment, await open_letters(deployment))
            await settled(deployment, lambda: len(ledger.dead_letters(deployment.log)) == 2)
    (again,) = await open_letters(deployment)
    assert again.letter is not None
    assert again.letter.attempts == 2
    await retry(deployment, [again])
    async with deployment.running():
        await settled(deployment, lambda: ledger.applied(deployment.log) == 1)
    report = await judged(deployment)
    assert (report.good, report.applied, report.dead_lettered) == (True, 1, 0), report.violations


def outgoing_raw(one: Reflection) -> Outgoing:
    """Return a record that whoever wrote it could write."""
    limit, Reflection.max_bytes = Reflection.max_bytes, 10**6
    try:
        return outgoing(one)
    finally:
        Reflection.max_bytes = limit


async def test_what_was_dropped_stays_a_dead_letter_that_somebody_answered_for() -> None:
    deployment = broken()
    await buried(deployment)
    found = await open_letters(deployment)
    await dead_letters.drop(deployment.log, deployment.clock, [found[0].id], "a test")
    report = await judged(deployment)
    assert (report.good, report.dead_lettered, report.dropped) == (True, BATCH, 1)
    assert len(await open_letters(deployment)) == BATCH - 1


async def test_a_retry_that_had_no_effect_is_lost_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_proven(*_: object) -> tuple[int, None]:
        return 0, None

    deployment = broken()
    await buried(deployment)
    await retry(deployment, await open_letters(deployment))
    monkeypatch.setattr(Attempts, "proven", nothing_proven)
    async with deployment.running():
        await settled(deployment, lambda: True)
        deployment.advance(60)
        await settled(deployment, lambda: True)
    report = await judged(deployment)
    assert report.lost == BATCH
    assert any("lost" in one for one in report.violations)


def letter_of(topic: str, **fields: Any) -> DeadLetter:
    plain: dict[str, Any] = {"origin_partition": 0, "origin_offset": 0, "service": "s", "reason": "r"}
    return DeadLetter(**{**plain, "origin_topic": topic, "value": b"x", **fields})


@pytest.mark.parametrize(
    ("letter", "says"),
    [
        (letter_of("commands"), "issue a new one"),
        (letter_of("playbooks"), "from services only"),
        (letter_of("nowhere"), "from services only"),
        (letter_of("traces", value=None), "no bytes"),
        (letter_of("traces", attempts=10_000), "10000 times"),
    ],
)
def test_what_cannot_be_sent_again_is_refused_with_a_remedy(letter: DeadLetter, says: str) -> None:
    assert says in (refusal(letter, {}) or "")


async def test_records_of_a_batch_are_sent_again_only_while_it_has_no_version() -> None:
    deployment = Deployment(batch_size=BATCH)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(BATCH)))
        await settled(deployment, lambda: ledger.applied(deployment.log) == BATCH)
    for topic in (topics.SCAN[0], topics.SCAN[1], topics.UPDATES):
        (record, *_) = records(deployment.log, topic)
        letter = letter_of(topic.name, value=record.value)
        assert refusal(letter, {}) is None
        assert "has its version already" in (refusal(letter, {NAME: 1}) or "")


@pytest.mark.parametrize("retained", [True, False])
async def test_a_letter_that_was_cut_is_sent_whole_from_its_origin_or_not_at_all(retained: bool) -> None:  # noqa: FBT001
    deployment = Deployment()
    whole = Outgoing(topic="traces", key=b"k" * 70_000, value=b"v" * 300_000, partition=1)
    if retained:
        await deployment.log.produce(whole)
    letter = letter_of(
        "traces",
        origin_partition=1,
        key=b"k" * 65_536,
        value=b"v" * 65_536,
        truncated=True,
        sha256=sha256(whole.value or b"").hexdigest(),
    )
    await deployment.log.produce(Outgoing(topic="dead-letters", value=encode(letter)))
    _, refused = await retry(deployment, await open_letters(deployment))
    sent = records(deployment.log, topics.TRACES)
    if retained:
        assert [(one.key, one.value) for one in sent] == [(whole.key, whole.value)] * 2
    else:
        assert sent == []
        assert "no longer" in refused[0].why


async def test_a_reflection_that_was_cut_goes_to_its_playbooks_partition() -> None:
    deployment = Deployment()
    whole = topics.REFLECTIONS.record(reflection(1))
    home = await deployment.log.partition_for(whole.topic, whole.key or b"")
    away = (home + 1) % await deployment.log.partitions(whole.topic)
    await deployment.log.produce(replace(whole, partition=away))
    letter = letter_of(
        whole.topic,
        origin_partition=away,
        key=whole.key,
        value=(whole.value or b"")[:20],
        truncated=True,
        sha256=sha256(whole.value or b"").hexdigest(),
    )
    await deployment.log.produce(Outgoing(topic="dead-letters", value=encode(letter)))
    await retry(deployment, await open_letters(deployment))
    assert {record.partition for record in records(deployment.log, topics.REFLECTIONS)} == {away, home}


def test_claims_that_cannot_be_read_are_none() -> None:
    good = attempt_headers(Attempt(number=1, letter=LetterId(partition=0, offset=2)))
    assert claimed_attempt(good) is not None
    for name, value in (("combee-attempt", b"0"), ("combee-attempt", b"-1"), ("combee-attempt", b"\xff")):
        assert claimed_attempt([*good, (name, value)]) is None
    assert claimed_attempt([*good, ("combee-dead-letter", "²-1".encode())]) is None
    assert claimed_attempt(()) is None


async def test_letters_that_name_no_partition_of_ours_are_refused() -> None:
    deployment = Deployment()
    letter = letter_of("traces", origin_partition=99)
    await deployment.log.produce(Outgoing(topic="dead-letters", value=encode(letter)))
    decisions, refused = await retry(deployment, await open_letters(deployment))
    assert decisions == []
    assert "no partition 99" in refused[0].why


# ---- of a version ahead

AHEAD: Mapping[str, Outgoing] = {
    "traces": topics.TRACES.record(Trace(trace_id="t-1", playbook=NAME, task="a task", answer="lesson 1")),
    "reflections": outgoing(reflection(1)),
    "outcomes": topics.OUTCOMES.record(Outcome(playbook=NAME, run_id="run-1", success=True)),
}


def counts(deployment: Deployment) -> bool:
    """Return whether the one message was learned from, or is part of the statistics."""
    statistics = ledger.messages(deployment.log, topics.OUTCOME_STATISTICS, OutcomeStatistics)
    return ledger.applied(deployment.log) == 1 or any(one.unplaced for one in statistics)


@pytest.mark.parametrize("topic", [one for one in topics.TOPICS if one.is_open], ids=lambda one: one.name)
async def test_what_was_of_a_version_ahead_counts_when_it_is_sent_again_after_an_upgrade(
    topic: topics.AnyTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, roles = Deployment(batch_size=1), (*ROLES, CONTROL)
    with monkeypatch.context() as before:
        before.setattr(topic.message, "version_number", topic.message.version_number - 1)
        async with deployment.running(roles):
            await deployment.log.produce(AHEAD[topic.name])
            await settled(deployment, lambda: ledger.dead_letters(deployment.log))
        (letter,) = await open_letters(deployment)
        assert letter.letter
        assert "upgrade it, then 'combee dlq retry'" in letter.letter.reason
        assert not counts(deployment)
        assert (await judged(deployment)).good
    decided, refused = await retry(deployment, [letter])
    assert (len(decided), refused) == (1, [])
    async with deployment.running(roles):
        await settled(deployment, lambda: counts(deployment))
    assert await open_letters(deployment) == []
    report = await judged(deployment)
    assert (report.good, report.dead_lettered) == (True, 0), report.violations


async def test_a_claim_to_a_letter_of_a_version_ahead_stops_nobody() -> None:
    deployment = Deployment(batch_size=1)
    place = LetterId(partition=0, offset=0)
    claims = replace(outgoing(reflection(1)), headers=attempt_headers(Attempt(number=1, letter=place)))
    newer_letter = Outgoing(topic=topics.DEAD_LETTERS.name, value=newer(DeadLetter), partition=0)
    async with deployment.running():
        await deployment.log.produce(newer_letter)
        await deployment.log.produce(claims, outgoing(reflection(2)))
        await settled(deployment, lambda: ledger.applied(deployment.log) == 1)
        letter = topics.DEAD_LETTERS.read(records(deployment.log, topics.DEAD_LETTERS)[-1])
    assert letter.value == claims.value
    assert "upgrade it" in letter.reason
