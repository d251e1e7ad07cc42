"""What the ledger and the status say, and how they exit."""

import json
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import Outgoing
from combee.cli.shared.sending import confirm_deletion
from combee.cli.status import log_status
from combee.core.batching.sizing import reasons
from combee.core.gate.canary_fold import Canary
from combee.core.gate.policy import CanaryPolicy
from combee.core.playbook.versions import empty
from combee.log.inspection.audit import audit
from combee.log.inspection.batches import newest_sequences
from combee.log.inspection.lag import backlog
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize, SizingKind
from combee_schemas.outcome import EntryOutcomes, Figures, Outcome, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Audit, Label
from support import ledger
from support.deployment import Deployment
from support.flat import changed, flat
from support.ledger import NAME, outgoing, reflection
from support.reading import COUNT, learned_from, put, run, run_json

pytestmark = pytest.mark.usefixtures("quick_polls")

QUIET = {
    "name": NAME, "branch": None, "budget": None, "proposed": 0, "batch_size": 40, "sizing": None, "warnings": {},
    "trust": "team: nobody proves who they are", "outcomes": None, "gate": None, "canary": None, "paused": None,
    "spend": {"tokens": 0, "cost": 0.0, "cap_tokens": None, "cap_cost": None, "together": None},
}  # fmt: skip
"""A playbook that spent nothing today, may spend what it likes, and of which there is little to say."""


@pytest.fixture
def learned(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:  # noqa: ARG001 - order
    return learned_from(monkeypatch)


def test_the_ledger_of_a_clean_log_exits_0(learned: Deployment) -> None:  # noqa: ARG001
    found = run_json("ledger")
    counts = {"reflections": 20, "applied": 20, "pending": 0, "dead_lettered": 0, "lost": 0, "double": 0}
    assert {name: found[name] for name in counts} == counts
    assert found["violations"] == []
    assert "every promise was kept" in run("ledger").stdout


def test_a_lost_reflection_makes_the_ledger_exit_1(
    learned: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.log.inspection.audit.AGAIN_S", 0.0)
    put(learned, topics.REFLECTIONS, NAME, outgoing(reflection(99)).value)
    committed = learned.log._store.committed["shuffle"]
    for place in committed:
        if place.topic == topics.REFLECTIONS.name:
            committed[place] += 1
    found = run_json("ledger", code=1)
    assert found["lost"] == 1
    assert "r-99" in found["violations"][0]
    result = run("ledger")
    assert result.exit_code == 1
    assert "VIOLATED" in result.stdout


async def test_the_audit_is_clean_at_every_moment_of_a_run() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running():
        for start in range(0, 40, 4):
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(start, start + 4)))
            report = await audit(deployment.log)
            assert report.violations == ()
        await deployment.until(lambda: ledger.applied(deployment.log) == 40)
    report = await audit(deployment.log)
    assert (report.reflections, report.applied, report.pending) == (40, 40, 0)


def test_status_shows_topics_services_and_playbooks(learned: Deployment) -> None:  # noqa: ARG001
    found = run_json("status")
    assert found["broker"] == "memory"
    assert found["topics"]["reflections"] == {"records": COUNT, "partitions": 2}
    assert list(found["topics"]) == [topic.name for topic in topics.TOPICS]
    assert found["services"] == {
        name: {"lag": 0, "oldest_uncommitted_s": None}
        for name in ("reflect", "shuffle", "scan", "publish", "control")
    }
    audit = Audit(new=COUNT // 2, said=COUNT // 2, verified=COUNT // 2).model_dump()
    made = {"version": 2, "made_by": "batch", "entries": COUNT, "in_flight": 0}
    assert plain(found["playbooks"]) == [{**QUIET, **made, "retention": 1.0, "omitted": 0.0, "audit": audit}]
    assert NAME in run("status").stdout


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without today's date."""
    return [{**row, "spend": {k: v for k, v in row["spend"].items() if k != "day"}} for row in rows]


def decide_size(deployment: Deployment, policy: SizingKind, reason: str) -> None:
    decided = BatchSize(playbook=NAME, batch_size=26, policy=policy, phase="settled", reason=reason)
    put(deployment, topics.BATCH_SIZES, NAME, encode(decided))


def test_status_shows_what_the_controller_decided_and_why(learned: Deployment) -> None:
    assert "start value" in run("status").stdout
    why = "2.7 reflections/s arrive; batches of 26 manage 4.2/s"
    decide_size(learned, "keep-up", why)
    (row,) = run_json("status")["playbooks"]
    sizing = {"policy": "keep-up", "phase": "settled", "reason": why, "decided_at_ms": 0}
    assert (row["batch_size"], row["sizing"]) == (26, sizing)
    shown = run("status").stdout
    assert f"{NAME}: batches of 26 (keep-up, settled): {why}" in shown
    assert "start value" not in shown


def test_of_a_size_that_is_configured_status_names_the_policy_alone(learned: Deployment) -> None:
    decide_size(learned, "configured", reasons.CONFIGURED)
    shown = run("status").stdout
    assert "configured" in shown
    assert reasons.CONFIGURED not in shown


def test_only_what_is_omitted_or_unverified_is_a_warning(learned: Deployment) -> None:
    assert "warning" not in run("status").stdout
    newest = ledger.latest(learned.log).model_copy(update={"version": 3})
    shares = {"retention_recent": (0.9, 0.9, 0.9, 0.1), "omitted_recent": (0.0, 0.1, 0.0, 0.1)}
    put(learned, topics.PLAYBOOKS, NAME, encode(newest.model_copy(update=shares)))
    assert "warning" not in run("status").stdout
    worse = {"version": 4, "retention_recent": (0.9, 0.4), "omitted_recent": (0.1, 0.6), "omitted_count": 12}
    put(learned, topics.PLAYBOOKS, NAME, encode(newest.model_copy(update=worse)))
    assert f"warning: {NAME}: 60 % of the last batch's reflections were omitted" in run("status").stdout
    (row,) = run_json("status")["playbooks"]
    assert (row["retention"], row["omitted"], row["warnings"].keys()) == (0.4, 0.6, {"omitted"})
    claimed = changed(newest, version=5, audit=Audit(new=100, said=97, verified=51, carried=49))
    put(learned, topics.PLAYBOOKS, NAME, encode(claimed))
    assert f"warning: {NAME}: the model accounted for 97 %" in run("status").stdout


def test_the_ledger_tells_planned_calls_beside_those_made(learned: Deployment) -> None:  # noqa: ARG001
    assert "model calls: 8 made, 8 planned" in run("ledger").stdout
    calls = {
        "planned": 8,
        "made": 8,
        "skips": 0,
        "splits": 0,
        "re_asks": 0,
        "checks": 0,
        "hedges": 0,
        "left_out": 0,
    }
    assert run_json("ledger")["model_calls"] == calls


async def test_a_stopped_service_has_a_backlog_with_an_age() -> None:
    deployment = Deployment(batch_size=10)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(7)))
    deployment.advance(12.5)
    found = await backlog(deployment.log, "shuffle", deployment.clock)
    assert (found.lag, found.oldest_uncommitted_s) == (7, 12.5)
    assert (await backlog(deployment.log, "scan", deployment.clock)).lag == 0


async def test_batches_without_a_version_are_in_flight() -> None:
    deployment = Deployment(batch_size=10)
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 1)
    assert await newest_sequences(deployment.log) == {NAME: 1}
    (row,) = plain((await log_status(deployment.log, 40)).model_dump(mode="json")["playbooks"])
    made = {"version": 0, "made_by": "empty", "entries": 0, "in_flight": 1}
    assert row == {**QUIET, "trust": "", **made, "retention": None, "omitted": None, "audit": None}


async def test_before_a_deletion_the_line_s_batches_in_flight_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment = Deployment(batch_size=10)
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 1)
    await confirm_deletion(deployment.log, [empty(NAME), empty("other")], "delete?", yes=True)
    said = " ".join(capsys.readouterr().err.split())
    assert f"1 batches of {NAME} are in flight" in said
    assert "batches of other" not in said


async def test_a_batch_in_flight_is_found_behind_many_of_other_playbooks() -> None:
    deployment = Deployment(partitions=1)
    old = flat(
        Batch, batch_id="b", playbook="old", sequence=3, seed=0, members=(), copies=1, widths=(1,), base_version=0,
        through_offset=0, reason="size", batch_size=1,
    )  # fmt: skip
    late = [
        old.model_copy(
            update={
                "plan": old.plan.model_copy(update={"playbook": "new", "sequence": n}),
                "oldest_unpublished_offset": 0,
            }
        )
        for n in range(1, 99)
    ]
    key = Outgoing(topic=topics.BATCHES.name, key=b"k", value=encode(old), partition=0)
    await deployment.log.produce(
        key, *(Outgoing(topic=key.topic, value=encode(one), partition=0) for one in late)
    )
    assert await newest_sequences(deployment.log) == {"old": 3, "new": 98}


def test_status_and_show_tell_how_runs_went(learned: Deployment) -> None:
    said = Figures(runs=4, successes=3, failures=1)
    (entry, *_) = ledger.latest(learned.log).entries
    statistics = OutcomeStatistics(
        line=NAME,
        versions=tuple(VersionOutcomes(version=at, figures=said) for at in (1, 2, 99)),
        entries=(EntryOutcomes(entry_id=entry.id, shown=9, used=said),),
    )
    put(learned, topics.OUTCOME_STATISTICS, NAME, encode(statistics))
    (row,) = run_json("status")["playbooks"]
    assert (row["outcomes"]["version"], row["outcomes"]["success"]["mean"]) == (2, 0.75)
    assert f"{NAME}: version 2: 4 runs, success 75 % (30 to 95)" in run("status").stdout
    shown = run("playbook", "show", NAME).stdout
    assert "version 1: 4 runs, success 75 % (30 to 95)\n" in shown
    assert "version 2: 4 runs, success 75 % (30 to 95) <" in shown
    assert f"{entry.id}, used: 4 runs, success 75 % (30 to 95); shown to 9" in shown
    assert "version 99" not in shown
    outcomes = run_json("playbook", "show", NAME)["outcomes"]
    assert [each["version"] for each in outcomes["versions"]] == [1, 2]


def test_status_and_show_tell_how_far_a_canary_is(learned: Deployment) -> None:
    terms = CanaryPolicy(share=0.5).terms(NAME, 2, 1, 0)
    production = Label(playbook=NAME, label="production", version=1, gate=("canary",))
    candidate = Label(playbook=NAME, label="candidate", version=2, canary=terms)
    for label in (production, candidate):
        put(learned, topics.LABELS, f"{NAME}#{label.label}", encode(label))
    fresh = run_json("status")["playbooks"][0]["canary"]
    assert (fresh["state"], fresh["candidate"]["counted"]) == ("late", 0)
    canary = Canary(playbook=NAME, terms=terms.model_copy(update={"deadline_ms": 1 << 45}))
    again = candidate.model_copy(update={"canary": canary.terms})
    put(learned, topics.LABELS, f"{NAME}#candidate", encode(again))
    for caller in (0, 1, (1 << 64) - 1):
        canary.take_run(caller, 1.0)
    put(learned, topics.OUTCOME_STATISTICS, f"{NAME}#canary", encode(canary.statistics(0)))
    (row,) = run_json("status")["playbooks"]
    assert (row["canary"]["candidate"]["counted"], row["canary"]["control"]["counted"]) == (2, 1)
    line = f"{NAME}: canary open: candidate 2: 1.000 of 2 callers (2 runs), control 1: 1.000 of 1 callers (1 runs)"
    assert line in run("status").stdout
    assert "more callers with a scored run" in run("status").stdout
    assert "canary open: candidate 2" in run("playbook", "show", NAME).stdout
    shown = run_json("playbook", "show", NAME)["outcomes"]["canary"]
    assert shown == row["canary"]


def test_outcomes_are_published_as_lines(learned: Deployment, tmp_path: Path) -> None:
    lines = [
        {"run_id": "t-1", "success": True, "shown": {"version": 2}},
        {"run_id": "t-2", "score": 0.5, "colour": "red"},
        {"run_id": "t-3", "success": "perhaps"},
        {"run_id": "t-4", "task": "a trace that has a run", "answer": "4"},
    ]
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    found = run("publish", str(file), "--playbook", NAME, "--json")
    assert json.loads(found.stdout) == {
        "playbook": NAME,
        "published": {"traces": 1, "reflections": 0, "outcomes": 2},
        "rejected": 1,
    }
    assert "fields that were ignored: colour" in found.stderr
    said = ledger.messages(learned.log, topics.OUTCOMES, Outcome)
    assert [(each.run_id, each.success, each.score) for each in said] == [
        ("t-1", True, {}),
        ("t-2", None, {"score": 0.5}),
    ]
