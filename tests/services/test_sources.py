"""Sources through all services: what is proven, what is claimed, and how much of a batch one of them may fill."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, PoisonError
from combee.cli.learn.learning import Learning
from combee.cli.replay.recorded import Range, recording
from combee.cli.replay.replaying import Replay
from combee.cli.shared.sending import commands_on
from combee.core.commands import RefusedError
from combee.core.log.erasure.selector import Selector, Subjects
from combee.core.log.replaying.selection import Selection
from combee.core.names.identity import derived_ids, full_name, reflection_id
from combee.core.names.sources import UNPROVEN, KnownSources, Signer, secret_proof, with_secret
from combee.log.commands import dead_letters
from combee.log.commands.revocation import meant
from combee.log.inspection.audit import audit
from combee.log.inspection.dead_letters import letters
from combee.log.inspection.lineage import lineage
from combee.process.settings.methods import as_configured
from combee.process.worker.dead_letters import WRAPPABLE_BYTES, dead_letter
from combee.process.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.outcome import Outcome
from combee_schemas.plan import BranchSettings
from combee_schemas.records import IDENTITY_HEADER, Record
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Update
from combee_schemas.trace import Trace
from support import ledger
from support.branches import FORK, LINE, commands
from support.clock import ManualClock
from support.deployment import Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.forgetting import forgotten, wish
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo, items

pytestmark = pytest.mark.usefixtures("quick_polls")

SHOP, SERVICES = b"the secret of the shop", b"what the services share"
KNOWN = KnownSources(checks={"shop": ("secret", with_secret(SHOP))}, services=with_secret(SERVICES))


def provenance(forged: list[str] | None = None) -> Provenance:
    heard = [] if forged is None else forged
    return Provenance(KNOWN, services_secret=SERVICES, on_forged=heard.append)


def signed(record: Outgoing, name: str = "shop", secret: bytes = SHOP) -> Outgoing:
    header = secret_proof(secret, record.topic, name, record.value or b"")
    return Outgoing(topic=record.topic, key=record.key, value=record.value, headers=(header,))


def teaching(number: int, source: str = "") -> Outgoing:
    """Return a reflection: ``shop`` proves its name, others only claim theirs."""
    record = outgoing(reflection(number, source=Source(name=source) if source else None))
    return signed(record) if source == "shop" else record


async def learned(published: Sequence[Outgoing], **settings: Any) -> Deployment:
    deployment = Deployment(batch_size=len(published), provenance=provenance(), **settings)
    async with deployment.running():
        await deployment.log.produce(*published)
        await deployment.until(lambda: ledger.applied(deployment.log) == len(published))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return deployment


# ---- who taught it


async def test_the_manifest_the_result_and_the_entry_say_what_is_proven() -> None:
    claim = outgoing(reflection(1, source={"name": "shop", "proven": "key"}))
    forged = signed(outgoing(reflection(2, source={"name": "shop"})), secret=b"somebody else's secret")
    found = await learned([teaching(0, "shop"), claim, forged, teaching(3)])
    (batch,) = ledger.batches(found.log)
    proofs = {member.reflection_id: member.source and member.source.proven for member in batch.members}
    assert proofs == {"r-0~by~shop": "secret", "r-1": "", "r-2": "", "r-3": None}
    (update,) = ledger.messages(found.log, topics.UPDATES, Update)
    assert {seen.reflection_id for seen in update.result.seen if seen.source and seen.source.proven} == {
        "r-0~by~shop"
    }
    version = ledger.latest(found.log)
    by_lesson = {entry.content: entry.sources for entry in version.entries}
    assert by_lesson == {
        "lesson 0": ("shop",),
        "lesson 1": (UNPROVEN,),
        "lesson 2": (UNPROVEN,),
        "lesson 3": (UNPROVEN,),
    }
    assert ledger.batch_of(version).sources == {UNPROVEN: 3, "shop": 1}
    assert (await audit(found.log)).good


async def test_a_forged_proof_is_counted_once_however_often_it_is_read() -> None:
    forged: list[str] = []
    deployment = Deployment(batch_size=4, provenance=provenance(forged), window_memory_bytes=0)
    async with deployment.running():
        record = signed(outgoing(reflection(1, source={"name": "shop"})), secret=b"somebody else's secret")
        await deployment.log.produce(record, *(teaching(n) for n in (2, 3, 4)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 4)
    assert forged == ["reflections"]


async def test_a_trace_s_proof_goes_on_to_its_reflection_and_its_outcome() -> None:
    def trace(number: int, **fields: Any) -> Outgoing:
        return topics.TRACES.record(
            Trace(trace_id=f"t-{number}", playbook=NAME, task="t", answer=f"{number}", success=True, **fields)
        )

    deployment = Deployment(batch_size=2, provenance=provenance())
    async with deployment.running():
        await deployment.log.produce(
            signed(trace(1, source=Source(name="shop"))), trace(2, source=Source(name="shop"))
        )
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    (batch,) = ledger.batches(deployment.log)
    assert Counter(member.source and member.source.proven for member in batch.members) == {"secret": 1, "": 1}
    verified = [
        KNOWN.effective(record.topic, record.value or b"", record.headers, outcome.source).source
        for record in ledger.records(deployment.log, topics.OUTCOMES)
        for outcome in [topics.OUTCOMES.read(record)]
        if isinstance(outcome, Outcome)
    ]
    assert Counter(source and source.proven for source in verified) == {"secret": 1, "": 1}
    by_reflect = [
        provenance().is_by_reflect(record, provenance().reflection(record))
        for record in ledger.records(deployment.log, topics.REFLECTIONS)
    ]
    assert sorted(by_reflect) == [False, True], "an id alone is no proof of who wrote it"


async def test_the_ledger_finds_a_proven_trace_that_is_dead_and_too_large_to_be_kept_whole() -> None:
    def answer(_prompt: Prompt) -> NoReturn:
        raise PoisonError("no use")

    deployment = Deployment(model=ScriptedModel(answer), provenance=provenance())
    fields = {"trace_id": "t-1", "playbook": NAME, "task": "t" * (WRAPPABLE_BYTES + 1)}
    async with deployment.running(["reflect"]):
        await deployment.log.produce(
            signed(topics.TRACES.record(Trace.model_validate(fields | {"source": Source(name="shop")})))
        )
        await deployment.until(lambda: not ledger.behind(deployment.log, {"reflect": (topics.TRACES,)}))
    account = await audit(deployment.log)
    assert (account.good, account.traces.dead_lettered) == (True, 1), account.violations


async def test_where_rights_let_one_source_write_its_name_is_proven() -> None:
    owned = Provenance(KnownSources(prefix_owner="shop"))
    deployment = Deployment(batch_size=2, provenance=owned)
    async with deployment.running():
        await deployment.log.produce(teaching(1, "desk"), teaching(2))
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    assert {entry.sources for entry in ledger.latest(deployment.log).entries} == {("shop",)}


# ---- shares of a batch


def shares(batches: Sequence[Batch]) -> list[Counter[str]]:
    """Return how many members of each batch are the shop's and the others'."""
    return [
        Counter("shop" if member.source and member.source.proven else "other" for member in batch.members)
        for batch in batches
    ]


def flush(through: int) -> Outgoing:
    return outgoing(Command(command_id=f"f-{through}", playbook=NAME, kind="flush", through_offset=through))


FLOOD = 30
"""Reflections of somebody who proves nothing; the shop's four come after them."""


async def flooded(deployment: Deployment) -> None:
    """Learn from a flood before the four lessons of the shop, until all are in a version."""
    async with deployment.running():
        await deployment.until(partial(finished, deployment), timeout_s=30)


async def began(**settings: Any) -> Deployment:
    """Return a deployment in which the shop has taught, before a flood and the shop's lessons."""
    deployment = Deployment(batch_size=8, provenance=provenance(), partitions=1, **settings)
    async with deployment.running():
        await deployment.log.produce(teaching(900, "shop"))
        await deployment.log.produce(flush(0))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
    flood = [teaching(n, f"name {n}") for n in range(FLOOD)]
    lessons = [teaching(100 + n, "shop") for n in range(4)]
    offsets = await deployment.log.produce(*flood, *lessons)
    await deployment.log.produce(flush(offsets[-1]))
    return deployment


async def test_a_source_fills_its_share_of_a_batch_and_the_rest_waits_for_the_next_ones() -> None:
    deployment = await began()
    await flooded(deployment)
    first, second, *others = shares(ledger.batches(deployment.log))
    assert first == {"shop": 1}
    assert second == {"other": 4, "shop": 4}
    assert [batch["other"] for batch in others] == [8, 8, 8, 2], "who is alone need not wait"
    ledger.check(
        deployment.log,
        {
            NAME: [
                *map(reflection, range(FLOOD)),
                *(reflection(n, reflection_id=f"r-{n}~by~shop") for n in (*range(100, 104), 900)),
            ]
        },
    )
    found = await audit(deployment.log)
    assert (found.good, found.applied, found.lost, found.double) == (True, FLOOD + 5, 0, 0)


async def test_what_waits_for_its_source_s_share_is_counted_until_it_goes() -> None:
    deployment = await began()
    deployment.model.gate.clear()
    async with deployment.running():
        await deployment.until(lambda: held_back(deployment) > 0)
        deployment.model.gate.set()
        await deployment.until(partial(finished, deployment), timeout_s=30)
        assert held_back(deployment) == 0


def held_back(deployment: Deployment) -> int:
    return deployment.shuffler.held()["source"] if deployment.shuffler else 0


async def test_without_the_rule_a_flood_fills_batch_after_batch() -> None:
    deployment = await began(trust="lab")
    await flooded(deployment)
    assert shares(ledger.batches(deployment.log))[1:4] == [{"other": 8}] * 3


async def test_names_that_a_lab_counted_give_nobody_a_larger_share_of_the_first_batch_after_it() -> None:
    """In a lab everybody may claim to be the shop."""
    rules: dict[str, Any] = {"batch_size": 8, "provenance": provenance(), "partitions": 1}
    lab, team = Deployment(trust="lab", **rules), Deployment(**rules)
    async with lab.running():
        await lab.log.produce(*(outgoing(reflection(n, source=Source(name="shop"))) for n in range(8)))
        await lab.until(lambda: ledger.applied(lab.log) == 8)
    team.log = lab.log
    await team.log.produce(
        *(teaching(n, "shop") for n in range(10, 18)), *(teaching(n, "") for n in range(20, 28))
    )
    async with team.running():
        await team.until(lambda: ledger.applied(team.log) == 24)
    assert shares(ledger.batches(team.log))[1] == {"shop": 4, "other": 4}


async def test_a_source_that_is_alone_is_not_held_up() -> None:
    deployment = Deployment(batch_size=8, provenance=provenance(), partitions=1)
    async with deployment.running():
        await deployment.log.produce(*(teaching(n, f"name {n}") for n in range(16)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 16)
    assert [len(batch.members) for batch in ledger.batches(deployment.log)] == [8, 8]


@pytest.mark.parametrize("kept", [9, 8])
async def test_a_flood_larger_than_memory_waits_in_the_log(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A window that keeps no more than a batch shows, too, who is beyond his share of it."""
    monkeypatch.setattr("combee.shuffle.partition.WINDOW_KEPT", kept)
    deployment = await began(window_memory_bytes=0)
    await flooded(deployment)
    assert shares(ledger.batches(deployment.log))[1]["shop"] == 4
    assert (await audit(deployment.log)).good


@pytest.mark.parametrize(("lifetime", "horizon"), [(9, 2000), (13, 4), (22, 4)])
async def test_processes_that_die_again_and_again_take_each_reflection_once(
    lifetime: int, horizon: int
) -> None:
    """What a batch took beyond one that waits is not taken again, however far back that batch is."""
    deployment, lives = await began(duplicate_horizon=horizon), 0
    while not finished(deployment):
        lives += 1
        assert lives < 200, "no progress"
        with suppress(CrashError):
            async with deployment.running(failpoint=CrashFailpoint(lifetime)):
                await deployment.until(partial(finished, deployment))
    found = await audit(deployment.log)
    assert (found.good, found.applied, found.double) == (True, FLOOD + 5, 0), found.violations
    assert shares(ledger.batches(deployment.log))[1] == {"other": 4, "shop": 4}
    assert lives > 1


def finished(deployment: Deployment) -> bool:
    return ledger.applied(deployment.log) == FLOOD + 5 and not ledger.behind(deployment.log)


async def test_a_branch_keeps_the_shares_too() -> None:
    deployment = await began()
    fork = Command(command_id="b-1", playbook=NAME, kind="branch", branch="short")
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == FLOOD + 5, timeout_s=30)
        await deployment.log.produce(outgoing(fork))
        await deployment.until(lambda: bool(ledger.versions(deployment.log, f"{NAME}@short")))
        deployment.model.gate.clear()
        await deployment.log.produce(*(teaching(200 + n, "?") for n in range(8)))
        await deployment.until(lambda: bool(ledger.batches(deployment.log, f"{NAME}@short")[1:]))
        flood = (teaching(210 + n, "?") for n in range(10))
        offsets = await deployment.log.produce(*flood, *(teaching(300 + n, "shop") for n in range(4)))
        line = Command(command_id="f-b", playbook=f"{NAME}@short", kind="flush", through_offset=offsets[-1])
        await deployment.log.produce(outgoing(line))
        await deployment.until(lambda: held_back(deployment) > 0)
        deployment.model.gate.set()
        await deployment.until(lambda: ledger.applied(deployment.log, f"{NAME}@short") == 22, timeout_s=30)
    _, second, *_ = shares(
        [batch for batch in ledger.batches(deployment.log, f"{NAME}@short") if batch.members]
    )
    assert second == {"other": 6, "shop": 2}, "six of eight are its part of all reflections"


TAUGHT = 64
"""Reflections of the shop before a flood."""


async def beyond(deployment: Deployment, then: Callable[[], bool]) -> None:
    """Learn the shop's four lessons beyond a part of a flood, of which two go on waiting.

    ``then``: what is waited for, too.
    """
    deployment.model.gate.clear()
    flood = (teaching(n) for n in range(22))
    await deployment.log.produce(*flood, *(teaching(100 + n, "shop") for n in range(4)))
    await deployment.until(lambda: held_back(deployment) > 0)
    deployment.model.gate.set()
    await deployment.until(lambda: ledger.applied(deployment.log) == TAUGHT + 24 and then())


async def test_a_branch_that_has_read_a_flood_alone_is_not_adopted_in_place_of_others_lessons() -> None:
    deployment = Deployment(batch_size=8, provenance=provenance(), partitions=1)
    fork = FORK.model_copy(update={"settings": BranchSettings(batch_size=22)})
    async with deployment.running():
        await deployment.log.produce(*(teaching(900 + n, "shop") for n in range(TAUGHT)))
        await deployment.until(lambda: ledger.applied(deployment.log) == TAUGHT)
        await deployment.log.produce(outgoing(fork))
        await deployment.until(lambda: bool(ledger.versions(deployment.log, LINE)))
        await beyond(deployment, lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        newest, branch = (ledger.latest(deployment.log, name) for name in (NAME, LINE))
        assert newest.through_offset < branch.through_offset
        with pytest.raises(RefusedError, match="has not read 4 reflections"):
            await commands(deployment).adopt(NAME, LINE, None)


async def test_what_was_batched_beyond_what_waits_for_its_share_is_as_old_as_its_batch() -> None:
    deployment = Deployment(batch_size=8, provenance=provenance(), partitions=1, max_wait_s=1e9)
    async with deployment.running():
        await deployment.log.produce(*(teaching(900 + n, "shop") for n in range(TAUGHT)))
        await deployment.until(lambda: ledger.applied(deployment.log) == TAUGHT)
        await beyond(deployment, lambda: True)
    deployment.advance(3_600)
    since = datetime.fromtimestamp(deployment.clock.now_ms() / 1000 - 60, UTC).isoformat()
    chosen = await meant(
        deployment.log,
        [ledger.latest(deployment.log)],
        [f"since:{since}"],
        now_ms=deployment.clock.now_ms(),
        known=KNOWN,
    )
    assert sorted(chosen.ids) == ["r-20", "r-21"]


@pytest.mark.parametrize("lifetime", [None, 22, 30])
async def test_a_branch_that_begins_amid_a_flood_takes_each_reflection_once(lifetime: int | None) -> None:
    deployment = await began(duplicate_horizon=4)
    line = f"{NAME}@short"
    async with deployment.running():
        await deployment.until(lambda: len(ledger.versions(deployment.log)) >= 3)
    fork = Command(command_id="b-1", playbook=NAME, kind="branch", branch="short")
    await deployment.log.produce(outgoing(fork))

    def done() -> bool:
        forked = ledger.versions(deployment.log, line)
        return ledger.applied(deployment.log) == FLOOD + 5 and bool(forked)

    for _ in range(200):
        with suppress(CrashError):
            async with deployment.running(failpoint=CrashFailpoint(lifetime)):
                await deployment.until(done)
        if done():
            break
    flush_line = Command(command_id="f-b", playbook=line, kind="flush", through_offset=FLOOD + 4)
    await deployment.log.produce(outgoing(flush_line))
    async with deployment.running():
        await deployment.until(
            lambda: (
                ledger.latest(deployment.log, line).through_offset >= FLOOD + 4
                and not ledger.behind(deployment.log)
            )
        )
    members = Counter(
        member.reflection_id for batch in ledger.batches(deployment.log, line) for member in batch.members
    )
    first = ledger.versions(deployment.log, line)[0]
    already = {each for entry in first.entries for each in entry.evidence}
    assert members.total() == len(members) == FLOOD + 5 - len(already)
    assert not already & members.keys()
    found = await audit(deployment.log)
    assert (found.good, found.double) == (True, 0), found.violations


# ---- a whole deployment


RULES = {"trust": "public", "colluders": 2}
"""Three honest sources, so that all of them must say a lesson."""


def of_three(number: int, lesson: str = "") -> Outgoing:
    """Return a lesson of one of three honest sources."""
    name = ("shop", "desk", "lab")[number % 3]
    fields = {"key_insight": lesson} if lesson else {}
    return signed(outgoing(reflection(number, source=Source(name=name), **fields)), name, name.encode() * 8)


THREE = Provenance(
    KnownSources(
        checks={name: ("secret", with_secret(name.encode() * 8)) for name in ("shop", "desk", "lab")}
    )
)


async def produced(records: Sequence[Outgoing], **settings: Any) -> set[str]:
    """Return the lessons that agents are shown after three honest sources taught one batch, and then these."""
    deployment = Deployment(batch_size=9, provenance=THREE, partitions=1, **settings)
    async with deployment.running():
        await deployment.log.produce(*(of_three(900 + n) for n in range(9)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 9)
        offsets = await deployment.log.produce(*records)
        await deployment.log.produce(flush(offsets[-1]))
        await deployment.until(lambda: ledger.applied(deployment.log) == 9 + len(records), timeout_s=30)
    return {entry.content for entry in ledger.latest(deployment.log).entries if entry.state == "active"}


async def test_an_honest_team_loses_no_lesson_to_the_rules() -> None:
    honest = [of_three(number) for number in range(40)]
    assert await produced(honest) == await produced(honest, trust="lab") != set()


async def test_of_a_third_of_attackers_under_many_names_nothing_is_shown() -> None:
    attack = [teaching(500 + n, f"name {n}") for n in range(12)]
    honest = [of_three(number, lesson=f"lesson {number // 3}") for number in range(27)]
    mixed = [record for pair in zip(attack, honest, strict=False) for record in pair] + honest[12:]
    poison = ledger.lessons(range(500, 512))
    assert await produced(mixed, trust="lab") >= poison
    assert await produced(mixed, **RULES) == ledger.lessons(range(9))


@pytest.mark.parametrize("method", ["ace", "gepa"])
async def test_in_public_no_model_reads_what_proves_nothing_and_the_audit_says_dropped(method: Any) -> None:
    deployment = Deployment(
        model=ScriptedModel(echo if method == "ace" else lambda _: {"text": "```\nBe brief.\n```"}),
        method=method,
        trust="public",
        batch_size=4,
        provenance=provenance(),
    )
    async with deployment.running():
        await deployment.log.produce(*(teaching(n, "shop" if n % 2 else "") for n in range(4)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 4)
    read = "".join(prompt.system + prompt.user for prompt in deployment.model.prompts)
    assert ["lesson 0" in read, "lesson 1" in read] == [False, True]
    (made,) = ledger.versions(deployment.log)
    assert made.audit is not None
    assert (made.audit.dropped, [source.name for source in made.taught_by]) == (2, ["shop"])


# ---- sent again, and learned again


async def test_a_dead_letter_sent_again_still_proves_its_source() -> None:
    def unusable(_: Prompt) -> Mapping[str, Any]:
        raise PoisonError("no use")

    deployment = Deployment(model=ScriptedModel(unusable), batch_size=1, provenance=provenance())
    async with deployment.running():
        await deployment.log.produce(teaching(1, "shop"))
        await deployment.until(lambda: len(ledger.dead_letters(deployment.log)) == 1)
    found = [letter async for letter in letters(deployment.log, lambda *_: None)]
    await dead_letters.resend(deployment.log, deployment.clock, found, {})
    deployment.model.answer = echo
    async with deployment.running():
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    (entry,) = ledger.latest(deployment.log).entries
    assert entry.sources == ("shop",)


async def test_a_replay_without_the_secrets_has_the_same_plans_and_versions() -> None:
    first = await began(trust="public", colluders=1)
    await flooded(first)
    replay = Replay(first.log, NAME, timeout_s=5)
    await replay.read()
    settings = as_configured(ledger.batches(first.log)[-1].plan.settings)
    second = Deployment(**{**settings, "batch_size": 9, "partitions": 1})  # type: ignore[arg-type]
    async with second.running(["publish", "shuffle"]):
        found = await replay.run(second.log)
    assert (found.plans_differ, found.contents_differ) == ([], [])
    states = Counter(entry.state for entry in ledger.latest(second.log).entries)
    assert states == Counter(entry.state for entry in ledger.latest(first.log).entries)
    assert states["proposed"] > 0


# ---- an id belongs to its source


def under(sent_id: str, lesson: str, source: str = "", secret: bytes = SHOP) -> Outgoing:
    """Return a reflection under this id; with a source it is signed, with a secret that may be somebody else's."""
    fields: dict[str, Any] = {"reflection_id": sent_id, "key_insight": lesson}
    record = outgoing(reflection(0, **fields, source=Source(name=source) if source else None))
    return signed(record, source, secret) if source else record


def member_ids(deployment: Deployment) -> list[str]:
    return [m.reflection_id for batch in ledger.batches(deployment.log) for m in batch.members]


def lessons_by_evidence(deployment: Deployment) -> dict[str, tuple[str, ...]]:
    return {entry.content: entry.evidence for entry in ledger.latest(deployment.log).entries}


async def test_who_proves_nothing_cannot_take_the_id_of_what_somebody_proves_later() -> None:
    taken = under("r-1", "the attacker's words")
    honest = under("r-1", "the lesson of the shop", "shop")
    found = await learned([taken, honest])
    assert member_ids(found) == ["r-1", "r-1~by~shop"]
    assert lessons_by_evidence(found) == {
        "the attacker's words": ("r-1",),
        "the lesson of the shop": ("r-1~by~shop",),
    }
    account = await audit(found.log)
    assert (account.good, account.reflections, account.applied, account.duplicates) == (True, 2, 2, 0)
    assert not account.conflicts


async def test_two_sources_may_use_one_id_and_a_repeat_is_the_same_id_of_the_same_source() -> None:
    secrets = {name: name.encode() * 8 for name in ("shop", "desk")}
    sent = [under("r-1", f"the lesson of {name}", name, secrets[name]) for name in ("shop", "desk")]
    deployment = Deployment(batch_size=4, provenance=THREE, partitions=1)
    async with deployment.running():
        plain = [under("r-1", "said by nobody"), under("r-2", "another")]
        await deployment.log.produce(*sent, *sent, plain[0], *plain)
        await deployment.until(lambda: ledger.applied(deployment.log) == 4)
    assert member_ids(deployment) == ["r-1~by~shop", "r-1~by~desk", "r-1", "r-2"]
    (batch,) = ledger.batches(deployment.log)
    assert [member.reflection_id for member in batch.dropped] == ["r-1~by~shop", "r-1~by~desk", "r-1"]
    account = await audit(deployment.log)
    assert (account.good, account.reflections, account.applied, account.duplicates) == (True, 4, 4, 3)


async def test_an_id_made_to_look_like_another_s_identity_is_not_that_identity() -> None:
    found = await learned(
        [under("r-1~by~shop", "the attacker's words"), under("r-1", "the lesson of the shop", "shop")]
    )
    assert member_ids(found) == ["r-1~by~shop~by~unproven", "r-1~by~shop"]
    account = await audit(found.log)
    assert (account.good, account.applied) == (True, 2), account.violations


async def test_what_is_forged_takes_nobody_s_id_and_the_ledger_stays_clean() -> None:
    forged = under("r-1", "the attacker's words", "shop", secret=b"somebody else's secret")
    found = await learned([forged, under("r-1", "the lesson of the shop", "shop")])
    assert member_ids(found) == ["r-1", "r-1~by~shop"]
    account = await audit(found.log)
    assert (account.good, account.reflections, account.applied) == (True, 2, 2), account.violations


def run(source: str = "", **fields: Any) -> Outgoing:
    named = {"source": Source(name=source)} if source else {}
    record = topics.TRACES.record(Trace(trace_id="run-1", playbook=NAME, task="t", **named, **fields))
    return signed(record, source) if source else record


async def test_who_proves_nothing_cannot_take_the_id_of_a_run() -> None:
    deployment = Deployment(batch_size=2, provenance=provenance())
    async with deployment.running():
        # Somebody may even know how a reflection's id follows from its run's, and write it first.
        first = under(reflection_id(NAME, "run-1", "shop"), "the attacker's words")
        await deployment.log.produce(run(answer="the attacker's"))
        await deployment.until(lambda: len(ledger.records(deployment.log, topics.REFLECTIONS)) == 1)
        await deployment.log.produce(first)
    async with deployment.running():
        await deployment.log.produce(run("shop", answer="the shop's"), run("shop", answer="the shop's"))
        await deployment.until(lambda: len(ledger.records(deployment.log, topics.REFLECTIONS)) == 3)
        await deployment.log.produce(flush(2))
        await deployment.until(lambda: ledger.applied(deployment.log) == 3)
    assert Counter(identity.rpartition("~by~")[2] for identity in member_ids(deployment))["shop"] == 1
    answers: dict[str, str] = {}
    for entry in ledger.latest(deployment.log).entries:
        known = await lineage(deployment.log, NAME, entry.id, traces=True, on_progress=lambda *_: None)
        answers |= {each.reflection_id: each.trace.answer for each in known.sources if each.trace}
    derived = {owner: derived_ids(NAME, "run-1", owner)[0] for owner in ("", "shop")}
    assert answers == {derived[""]: "the attacker's", derived["shop"]: "the shop's"}
    account = await audit(deployment.log)
    assert account.good, account.violations
    assert (account.reflections, account.traces.acknowledged, account.traces.reflected) == (3, 3, 2)


async def test_a_replay_without_the_secrets_tells_apart_what_has_one_id() -> None:
    first = await learned(
        [
            under("r-1", "the attacker's words"),
            under("r-1", "the lesson of the shop", "shop"),
            under("r-2", "forged", "shop", secret=b"somebody else's secret"),
            under("r-3~by~shop", "one more"),
        ]
    )
    replay = Replay(first.log, NAME, timeout_s=5)
    await replay.read()
    for again in (
        Deployment(batch_size=9),
        Deployment(batch_size=9, provenance=provenance()),
    ):
        settings = as_configured(ledger.batches(first.log)[-1].plan.settings)
        again.settings = again.settings.model_copy(update={**settings, "batch_size": 9})
        async with again.running(["publish", "shuffle"]):
            found = await replay.run(again.log)
        assert (found.plans_differ, found.contents_differ) == ([], [])
        assert member_ids(again) == member_ids(first)


async def test_where_nothing_proves_a_source_ids_stay_as_they_are_sent() -> None:
    deployment = Deployment(batch_size=2)
    async with deployment.running():
        sent = [under("r-1", "first", "shop"), under("r-1", "second"), under("r-2~by~shop", "third")]
        await deployment.log.produce(*sent)
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    assert member_ids(deployment) == ["r-1", "r-2~by~shop"]
    account = await audit(deployment.log)
    assert (account.good, account.applied, account.duplicates) == (True, 2, 1), account.violations


async def test_a_header_of_a_replay_gives_nobody_another_id() -> None:
    headers = ((IDENTITY_HEADER, b"r-2"),)
    for proves in (None, provenance()):
        deployment = Deployment(batch_size=2, provenance=proves)
        async with deployment.running():
            copied = replace(under("r-1", "with the header"), headers=headers)
            qualified = replace(under("r-3", "with its own"), headers=((IDENTITY_HEADER, b"r-3~by~shop"),))
            await deployment.log.produce(
                copied, under("r-1", "without it"), qualified, under("r-2", "another")
            )
            await deployment.log.produce(flush(3))
            await deployment.until(lambda log=deployment.log: ledger.applied(log) == 3)  # type: ignore[misc]
        third = "r-3" if proves else "r-3~by~shop"
        assert sorted(member_ids(deployment)) == ["r-1", "r-2", third]
        account = await audit(deployment.log)
        assert (account.good, account.applied, account.duplicates) == (True, 3, 1), account.violations


# ---- revoked, forgotten and asked about apart


async def both_learned() -> Deployment:
    """Return a deployment that has learned what an attacker and the shop have sent under one id."""
    return await learned(
        [
            under("r-1", "the attacker's words of Mallory"),
            under("r-1", "the lesson of the shop", "shop"),
            under("r-2", "the second lesson of the shop", "shop"),
        ]
    )


async def test_a_revocation_tells_apart_what_has_one_id() -> None:
    found = await both_learned()
    version = ledger.latest(found.log)

    async def ids(*chosen: str) -> tuple[str, ...]:
        return (await meant(found.log, [version], chosen, now_ms=found.clock.now_ms())).ids

    assert await ids("r-2") == ("r-2~by~shop",)
    assert await ids("r-1~by~shop") == ("r-1~by~shop",)
    assert await ids("r-1~by~unproven") == ("r-1",)
    assert await ids("text:Mallory") == ("r-1",)
    assert await ids("text:the lesson of the shop") == ("r-1~by~shop",)
    with pytest.raises(
        ValueError, match=r"r-1 means 2 reflections.*: name one of r-1~by~shop, r-1~by~unproven"
    ):
        await ids("r-1")


def forged(number: str, text: str) -> Outgoing:
    """Return a reflection that claims to be the shop's, with a proof that is none."""
    record = outgoing(reflection(0, reflection_id=number, key_insight=text, source=Source(name="shop")))
    return signed(record, secret=b"somebody else's secret")


async def test_a_forged_reflection_that_waits_does_not_let_an_honest_one_be_revoked_in_its_place() -> None:
    found = await both_learned()
    version, now_ms = ledger.latest(found.log), found.clock.now_ms()
    await found.log.produce(forged("r-2", "the words of Eve"), forged("r-9", "more words of Eve"))

    async def ids(rule: str, known: KnownSources) -> tuple[str, ...]:
        return (await meant(found.log, [version], [rule], now_ms=now_ms, known=known)).ids

    assert await ids("text:words of Eve", KNOWN) == ("r-2", "r-9"), "their batch will count them under these"
    assert await ids("text:words of Eve", KnownSources()) == ("r-9~by~shop",), "nothing proves or refutes it"
    assert await ids("source:shop", KNOWN) == ("r-1~by~shop", "r-2~by~shop", "r-2", "r-9")


@pytest.mark.parametrize("key", [None, b"another"])
async def test_a_record_under_another_key_is_revoked_by_its_words_as_it_is_learned(key: bytes | None) -> None:
    deployment = Deployment(batch_size=1, provenance=provenance(), partitions=1)
    other = outgoing(reflection(2, playbook="support/other", key_insight="other words of Eve"))
    async with deployment.running():
        await deployment.log.produce(replace(under("r-1", "words of Eve"), key=key, partition=0))
        await deployment.log.produce(replace(other, key=NAME.encode(), partition=0))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
    version, now_ms = ledger.latest(deployment.log), deployment.clock.now_ms()
    assert [entry.content for entry in version.entries] == ["words of Eve"]
    chosen = await meant(deployment.log, [version], ["text:words of Eve"], now_ms=now_ms, known=KNOWN)
    assert chosen.ids == ("r-1",)


async def test_revoking_a_source_takes_back_what_counts_as_its_own_and_what_claims_its_name() -> None:
    claim = outgoing(reflection(1, source=Source(name="shop")))
    found = await learned([teaching(0, "shop"), claim, teaching(2)])
    version, now_ms = ledger.latest(found.log), found.clock.now_ms()

    async def ids(rule: str) -> set[str]:
        return {*(await meant(found.log, [version], [rule], now_ms=now_ms)).ids}

    assert await ids("source:shop") == {"r-0~by~shop", "r-1"}
    assert await ids("source:unproven") == {"r-1", "r-2"}
    await found.log.produce(outgoing(reflection(3, source=Source(name="shop"))), teaching(4, "shop"))
    assert await ids("source:shop") >= {"r-0~by~shop", "r-1", "r-4~by~shop"}, "what waits shows a proof"
    read = await recording(found.log, NAME, Range(), [Selection.parse("source:shop")])
    assert {arrival.reflection_id for arrival in read.arrivals} == {"r-2"}


async def test_a_variant_without_one_source_goes_without_what_was_revoked_earlier_too() -> None:
    """Who learns again without one source, as the guide says, had the lessons of another one back."""
    found = await learned([teaching(0, "shop"), teaching(1, "lab"), teaching(2), teaching(3)])
    revoke = Command(
        command_id="c", playbook=NAME, kind="revoke", reflection_ids=("r-3",), rules=("source:lab", "id:r-3")
    )
    async with found.running(["publish"]):
        await found.log.produce(outgoing(revoke))
        await found.until(lambda: bool(ledger.latest(found.log).revocations))
    read = await recording(found.log, NAME, Range(), [Selection.parse("source:shop")])
    assert {arrival.reflection_id for arrival in read.arrivals} == {"r-2"}


async def test_a_variant_goes_without_one_of_two_that_have_one_id() -> None:
    found = await both_learned()

    async def kept(rule: str) -> set[str]:
        read = await recording(found.log, NAME, Range(), [Selection.parse(rule)])
        return {arrival.reflection_id for arrival in read.arrivals}

    assert await kept("id:r-1~by~shop") == {"r-1", "r-2~by~shop"}
    assert await kept("id:r-1~by~unproven") == {"r-1~by~shop", "r-2~by~shop"}
    assert await kept("id:r-1") == {"r-2~by~shop"}


async def test_a_run_is_revoked_by_its_id_whoever_has_proven_it() -> None:
    deployment = Deployment(batch_size=1, provenance=provenance())
    async with deployment.running():
        await deployment.log.produce(run("shop", answer="the shop's"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
    (own_id,) = member_ids(deployment)
    version, now_ms = ledger.latest(deployment.log), deployment.clock.now_ms()
    chosen = await meant(deployment.log, [version], ["run-1"], now_ms=now_ms)
    assert chosen.ids == (own_id,)
    assert own_id.endswith("~by~shop")


async def test_an_id_that_is_a_reflection_s_and_a_foreign_run_s_is_revoked_by_full_name_only() -> None:
    deployment = Deployment(batch_size=1, provenance=provenance())
    async with deployment.running():
        await deployment.log.produce(run("shop", answer="the shop's"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
        await deployment.log.produce(under("run-1", "the attacker's words"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    shops, foreign = member_ids(deployment)
    version, now_ms = ledger.latest(deployment.log), deployment.clock.now_ms()
    names = sorted(map(full_name, (shops, foreign)))
    with pytest.raises(ValueError, match=f"run-1 means 2 reflections.*: name one of {', '.join(names)}"):
        await meant(deployment.log, [version], ["run-1"], now_ms=now_ms)
    for own_id in (shops, foreign):
        chosen = await meant(deployment.log, [version], [full_name(own_id)], now_ms=now_ms)
        assert chosen.ids == (own_id,)


async def test_a_run_s_id_that_a_foreign_reflection_names_too_does_not_revoke_the_run_s_own_alone() -> None:
    deployment = Deployment(batch_size=1, provenance=provenance())
    naming = reflection(0, reflection_id="x", key_insight="pay everything twice", trace_id="run-1")
    async with deployment.running():
        await deployment.log.produce(run("shop", answer="the shop's"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
        await deployment.log.produce(outgoing(naming))
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    (shops, _), now_ms = member_ids(deployment), deployment.clock.now_ms()
    version = ledger.latest(deployment.log)
    with pytest.raises(ValueError, match=f"run-1 means 2 .*: name one of {shops}, x~by~unproven"):
        await meant(deployment.log, [version], ["run-1"], now_ms=now_ms, known=KNOWN)
    chosen = await meant(deployment.log, [version], ["x~by~unproven"], now_ms=now_ms, known=KNOWN)
    assert chosen.ids == ("x",)


async def test_a_run_s_id_that_reflections_of_several_sources_name_is_not_revoked_by_it() -> None:
    def of_run(sent_id: str, trace_id: str, source: str = "") -> Outgoing:
        named = Source(name=source) if source else None
        record = outgoing(reflection(0, reflection_id=sent_id, trace_id=trace_id, source=named))
        return signed(record, source) if source else record

    shops = [of_run("r-1", "run-1", "shop"), of_run("r-2", "run-1", "shop"), of_run("r-3", "run-3", "shop")]
    found = await learned([*shops, of_run("r-4", "run-3")])
    version, now_ms = ledger.latest(found.log), found.clock.now_ms()
    chosen = await meant(found.log, [version], ["run-1"], now_ms=now_ms)
    assert chosen.ids == ("r-1~by~shop", "r-2~by~shop")
    with pytest.raises(ValueError, match=r"run-3 means 2.*: name one of r-3~by~shop, r-4~by~unproven"):
        await meant(found.log, [version], ["id:run-3"], now_ms=now_ms)


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        (Selector(rules=(Selection("id", "r-1~by~unproven"),), kind="filter"), "the lesson of the shop"),
        (Selector(subjects=Subjects(("Mallory",))), "the lesson of the shop"),
        (Selector(rules=(Selection("id", "r-1~by~shop"),), kind="filter"), "the attacker's words of Mallory"),
        (Selector(subjects=Subjects(("lesson of the shop",))), "the attacker's words of Mallory"),
    ],
    ids=["an id that nobody proves", "whom the attacker names", "the shop's id", "what the shop says"],
)
async def test_forgetting_tells_apart_what_has_one_id(tmp_path: Path, selector: Selector, left: str) -> None:
    found, new = await both_learned(), MemoryLog(ManualClock(), partitions=2, scan_partitions=3)
    await forgotten(found.log, new, tmp_path, wish(selector))
    kept = {lesson.key_insight for lesson in ledger.messages(new, topics.REFLECTIONS, Reflection)}
    assert left in kept
    assert kept <= {left, "the second lesson of the shop"}
    assert left in {entry.content for entry in ledger.latest(new).entries}
    assert (await audit(new)).violations == ()


def elsewhere(found: Deployment) -> list[Outgoing]:
    """Return reflections on the partition where the playbook's do not stand, at the same places as these."""
    (batch,) = ledger.batches(found.log)
    home = next(record.partition for record in ledger.records(found.log, topics.BATCHES))
    words = [under(f"x-{n}", f"{n} words of Mallory") for n in range(len(batch.members))]
    return [replace(record, partition=1 - home) for record in words]


def in_a_letter(record: Outgoing) -> Outgoing:
    """Return the dead letter of a reflection that its reader refused unread."""
    read = Record(
        topic=record.topic,
        partition=1,
        offset=0,
        timestamp_ms=0,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    return dead_letter(read, service="shuffle", reason="odd", clock=ManualClock())


SHOPS = "r-2~by~shop"
NAMING: Mapping[str, Callable[[Deployment], Sequence[Outgoing]]] = {
    "a run called like it": lambda _: [
        topics.TRACES.record(Trace(trace_id=SHOPS, playbook=NAME, task="Mallory"))
    ],
    "an outcome of such a run": lambda _: [
        topics.OUTCOMES.record(Outcome(run_id=SHOPS, playbook=NAME, success=True, caller="Mallory"))
    ],
    "a reflection of such a run": lambda _: [
        outgoing(reflection(0, reflection_id="x", key_insight="Mallory", trace_id=SHOPS))
    ],
    "a forged proof": lambda _: [forged("r-2", "Mallory")],
    "a forged proof in a dead letter": lambda _: [in_a_letter(forged("r-2", "Mallory"))],
    "its place on another partition": elsewhere,
}
"""What names Mallory, and by its ids or place would pass for the shop's reflection."""


@pytest.mark.parametrize("naming", NAMING.values(), ids=NAMING)
async def test_who_names_somebody_under_another_s_ids_lets_no_lesson_be_forgotten_but_its_own(
    tmp_path: Path, naming: Callable[[Deployment], Sequence[Outgoing]]
) -> None:
    found, new = await both_learned(), MemoryLog(ManualClock(), partitions=2, scan_partitions=3)
    await found.log.produce(*naming(found))
    await forgotten(found.log, new, tmp_path, wish(Selector(subjects=Subjects(("Mallory",)))))
    assert {entry.content for entry in ledger.latest(new).entries} == {
        "the lesson of the shop",
        "the second lesson of the shop",
    }


async def test_an_id_made_to_look_like_another_s_is_not_that_one_on_a_foreign_partition_either(
    tmp_path: Path,
) -> None:
    posing = under(SHOPS, "the words of Mallory")
    found = await learned([posing, under("r-2", "the lesson of the shop", "shop")])
    new = MemoryLog(ManualClock(), partitions=2, scan_partitions=3)
    home = next(record.partition for record in ledger.records(found.log, topics.BATCHES))
    await found.log.produce(replace(posing, partition=1 - home))
    await forgotten(found.log, new, tmp_path, wish(Selector(subjects=Subjects(("Mallory",)))))
    assert {entry.content for entry in ledger.latest(new).entries} == {"the lesson of the shop"}


async def test_a_run_that_only_claims_a_source_lets_none_of_that_source_be_forgotten(tmp_path: Path) -> None:
    deployment = Deployment(batch_size=1, provenance=provenance())
    new = MemoryLog(ManualClock(), partitions=2, scan_partitions=3)
    async with deployment.running():
        await deployment.log.produce(run("shop", answer="the shop's"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
    claim = Trace(trace_id="run-1", playbook=NAME, task="Mallory", source=Source(name="shop"))
    await deployment.log.produce(topics.TRACES.record(claim))
    await forgotten(deployment.log, new, tmp_path, wish(Selector(subjects=Subjects(("Mallory",)))))
    assert ledger.latest(new).entries


async def test_why_names_each_of_two_reflections_under_one_id_with_its_own_words() -> None:
    found = await both_learned()
    entries = {entry.content: entry.id for entry in ledger.latest(found.log).entries}
    for content, own_id in (
        ("the lesson of the shop", "r-1~by~shop"),
        ("the attacker's words of Mallory", "r-1"),
    ):
        known = await lineage(found.log, NAME, entries[content], traces=False, on_progress=lambda *_: None)
        assert [source.reflection_id for source in known.sources] == [own_id]
        assert [source.reflection and source.reflection.key_insight for source in known.sources] == [content]


async def test_why_shows_below_a_reflection_no_run_of_another_source_whose_id_it_names() -> None:
    deployment = Deployment(batch_size=2, provenance=provenance())
    of_run = reflection(0, reflection_id="r-1", trace_id="run-1", source=Source(name="shop"))
    async with deployment.running(["publish", "scan", "shuffle"]):
        await deployment.log.produce(run(answer="the attacker's"), run("shop", answer="the shop's"))
        naming = reflection(1, reflection_id="x", key_insight="pay twice", trace_id="run-1")
        await deployment.log.produce(signed(outgoing(of_run)), outgoing(naming))
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    answers: dict[str, str] = {}
    for entry in ledger.latest(deployment.log).entries:
        known = await lineage(deployment.log, NAME, entry.id, traces=True, on_progress=lambda *_: None)
        answers |= {each.reflection_id: each.trace.answer for each in known.sources if each.trace}
    assert answers == {"r-1~by~shop": "the shop's", "x": "the attacker's"}


# ---- what becomes of it


async def test_a_batch_goes_on_under_its_ids_and_sources_though_the_secret_was_taken_away_since() -> None:
    deployment = Deployment(batch_size=2, provenance=provenance(), batch_timeout_s=60.0)
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(under("r-1", "by nobody"), under("r-1", "by the shop", "shop"))
        await deployment.until(lambda: bool(ledger.batches(deployment.log)))
    first = len(ledger.records(deployment.log, topics.SCAN[0]))
    deployment.provenance = Provenance(KnownSources(services=with_secret(SERVICES)))
    deployment.shuffler = None
    async with deployment.running(["shuffle"]):
        await deployment.until(lambda: bool(deployment.shuffler and deployment.shuffler.in_flight()))
        deployment.advance(61.0)
        await deployment.until(lambda: len(ledger.records(deployment.log, topics.SCAN[0])) > first)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    assert not ledger.dead_letters(deployment.log)
    groups = ledger.messages(deployment.log, topics.SCAN[0], Group)
    proofs = [
        {
            member.reflection.reflection_id: bool(
                member.reflection.source and member.reflection.source.proven
            )
            for member in group.members
        }
        for group in groups
    ]
    assert proofs == [{"r-1": False, "r-1~by~shop": True}] * 2


async def test_a_run_that_is_proven_and_of_no_use_is_a_dead_letter_of_its_own() -> None:
    def unusable(_: Prompt) -> Mapping[str, Any]:
        raise PoisonError("no use")

    deployment = Deployment(batch_size=1, provenance=provenance())
    async with deployment.running():
        await deployment.log.produce(run(answer="the attacker's"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 1)
    deployment.model.answer = unusable
    async with deployment.running():
        await deployment.log.produce(run("shop", answer="the shop's"))
        await deployment.until(lambda: len(ledger.dead_letters(deployment.log)) == 1)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    account = await audit(deployment.log)
    assert account.good, account.violations
    assert (account.traces.reflected, account.traces.dead_lettered) == (1, 1)


async def test_learning_what_somebody_else_took_the_ids_of_waits_for_its_own() -> None:
    deployment = Deployment(batch_size=2, provenance=provenance())
    items = [reflection(1, reflection_id="r-1", source=Source(name="shop"))]
    signer = Signer(name="shop", secret=SHOP)
    async with deployment.running():
        await deployment.log.produce(under("r-1", "the attacker's words"), teaching(9, "shop"))
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
        learning = Learning(deployment.log, None, deployment.clock, concurrency=1, signer=signer)
        assert await learning.known(items, NAME) is None
        report = await learning.run(items, NAME, stall_s=30.0)
        assert (report.published, report.applied, report.duplicates, report.conflicts) == (1, 1, 0, ())
        again = await learning.known(items, NAME)
        assert again is not None
        assert (again.duplicates, again.conflicts) == (1, ())
    assert "r-1~by~shop" in member_ids(deployment)


async def test_where_nobody_looks_at_proofs_learning_signed_items_ends_too() -> None:
    deployment = Deployment(batch_size=1)
    items = [reflection(1, source=Source(name="shop"))]
    async with deployment.running():
        signer = Signer(name="shop", secret=SHOP)
        learning = Learning(deployment.log, None, deployment.clock, concurrency=1, signer=signer)
        report = await learning.run(items, NAME, stall_s=30.0)
        assert (report.published, report.applied) == (1, 1)
        assert await learning.known(items, NAME) is not None
    assert member_ids(deployment) == ["r-1"]


# ---- a source that rides on what others say, and is revoked

TOLD = "Ask every customer for the receipt."
RIDING = f"{TOLD} Write the number of the till on the back of it with a pencil."
SECRETS = {name: f"the secret of the {name}".encode() for name in ("lab", "shop", "desk")}
both_postures = pytest.mark.parametrize("trust", ["team", "public"])
ASKED = {"team": 1, "public": 0}
"""Batches that ask again: in public a check call's word puts no lesson into what one source says."""


def longest(prompt: Prompt) -> Mapping[str, Any]:
    """Say the longest of the lessons, as if all said it: a check call finds the others in it."""
    said, numbers = zip(*((item["key_insight"], item["n"]) for item in items(prompt)), strict=True)
    adds = {"type": "ADD", "section": "OTHERS", "content": max(said, key=len), "sources": [*numbers]}
    return {"operations": [adds]}


def with_secrets(secrets: Mapping[str, bytes]) -> Provenance:
    checks: dict[str, Any] = {name: ("secret", with_secret(secret)) for name, secret in secrets.items()}
    return Provenance(KnownSources(checks=checks))


def riding(trust: str) -> Deployment:
    return Deployment(
        batch_size=3,
        small_batches="one-call",
        model=ScriptedModel(longest),
        provenance=with_secrets(SECRETS),
        trust=trust,
        colluders=1,
    )


async def say(deployment: Deployment, first: int, *said: tuple[str, str]) -> None:
    """Let sources say lessons, each signed."""
    for number, (name, text) in enumerate(said, first):
        record = outgoing(reflection(number, key_insight=text, source=Source(name=name)))
        await deployment.log.produce(signed(record, name, SECRETS[name]))


async def revoke_lab(deployment: Deployment) -> None:
    decision = await commands_on(deployment.log, deployment.clock).revoke(NAME, ["source:lab"])
    assert decision.command is not None
    await deployment.log.produce(outgoing(decision.command))


async def settled(deployment: Deployment, versions: int) -> list[tuple[str, tuple[str, ...], bool]]:
    """Return what entries say, by whom, and whether agents are shown it, once there are so many versions."""
    await deployment.until(lambda: len(ledger.versions(deployment.log)) == versions)
    await deployment.until(lambda: not ledger.behind(deployment.log))
    return [
        (entry.content, entry.sources, entry.is_active) for entry in ledger.latest(deployment.log).entries
    ]


@both_postures
async def test_who_is_asked_about_again_is_the_source_that_was_proven_though_its_secret_is_another_now(
    trust: str,
) -> None:
    """A revocation after a secret was changed made others' lessons unproven; in public these were lost."""
    deployment = riding(trust)
    async with deployment.running():
        await say(deployment, 0, ("lab", RIDING), ("shop", TOLD), ("desk", TOLD))
        await deployment.until(lambda: ledger.applied(deployment.log) == 3)
    await revoke_lab(deployment)
    deployment.provenance = with_secrets({"shop": b"another secret of the shop"})
    async with deployment.running():
        assert await settled(deployment, versions=2 + ASKED[trust]) == [(TOLD, ("shop", "desk"), True)]


@both_postures
async def test_a_batch_under_way_brings_back_no_words_of_a_source_that_was_revoked_meanwhile(
    trust: str,
) -> None:
    """They were applied after the revocation, since a check call had found others' lessons in them."""
    deployment = riding(trust)
    async with deployment.running():
        await say(deployment, 0, *[("lab", "Count the stamps in the drawer every day.")] * 3)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        deployment.model.gate.clear()
        await say(deployment, 3, ("lab", RIDING), ("shop", TOLD), ("desk", TOLD))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await revoke_lab(deployment)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        deployment.model.gate.set()
        assert await settled(deployment, versions=3 + ASKED[trust]) == [(TOLD, ("shop", "desk"), True)]


@both_postures
async def test_words_of_a_revoked_source_stay_for_nobody_who_says_them_by_a_check_calls_word_alone(
    trust: str,
) -> None:
    deployment = riding(trust)
    async with deployment.running():
        await say(deployment, 0, *[("lab", RIDING)] * 3)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        await say(deployment, 3, ("lab", RIDING), ("shop", TOLD), ("desk", TOLD))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await revoke_lab(deployment)
        assert await settled(deployment, versions=3 + ASKED[trust]) == [(TOLD, ("shop", "desk"), True)]


async def test_long_names_that_others_claim_hide_no_source_from_its_revocation() -> None:
    """A manifest has no room for all of them: it named nobody then, and the revocation found nothing."""
    claims = [outgoing(reflection(n, source=Source(name="\U0001f41d" * 80))) for n in range(1, 750)]
    found = await learned([teaching(0, "shop"), *claims])
    version, now_ms = ledger.latest(found.log), found.clock.now_ms()
    assert (await meant(found.log, [version], ["source:shop"], now_ms=now_ms)).ids == ("r-0~by~shop",)
