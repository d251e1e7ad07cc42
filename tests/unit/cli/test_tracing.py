"""From an entry to the runs that taught it, what learning took, and input given by the line."""

import asyncio
import json

import pytest

from combee.log.reports.cost import cost_report
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook, Spend
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing as outgoing_item
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.flat import flat
from support.ledger import NAME
from support.reading import learned_from, publish_with, run, run_json, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture
def learned(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:  # noqa: ARG001 - order
    deployment = learned_from(monkeypatch)
    publish_with(monkeypatch, deployment)
    return deployment


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    deployment = Deployment()
    use_log(monkeypatch, deployment.log)
    return deployment


# ---- why


def test_why_leads_from_an_entry_to_its_reflection(learned: Deployment) -> None:
    entry = next(one for one in ledger.latest(learned.log).entries if one.content == "lesson 13")
    found = run_json("why", entry.id)
    assert (found["playbook"], found["version"], found["live"]) == (NAME, 2, True)
    assert found["entry"] == entry.model_dump(mode="json")
    (change,) = found["changes"]
    assert (change["version"], change["kind"], change["batch_sequence"]) == (2, "add", 2)
    (source,) = found["reflections"]
    assert (source["reflection_id"], source["batch_sequence"]) == ("r-13", 2)
    assert source["reflection"]["key_insight"] == "lesson 13"
    assert source["trace"] is None
    out = run("why", entry.id, "--playbook", NAME).stdout
    assert run("why", NAME, entry.id).stdout == run("why", entry.id).stdout == out
    assert run("why", NAME, entry.id, "--playbook", "another").exit_code == 2
    assert run("why", "bad name", entry.id).exit_code == 2
    assert f"[{entry.id}] lesson 13" in out
    assert "reflection r-13 (batch 2)" in out


def test_why_finds_the_run_behind_a_reflection(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(batch_size=1)
    use_log(monkeypatch, deployment.log)
    run_line = Trace(
        trace_id="t-7", playbook=NAME, task="refund it", answer="no", feedback="wrong", agent="a-1"
    )

    async def learn() -> None:
        async with deployment.running():
            reflection = ledger.reflection(1, trace_id="t-7", source={"name": "shop-b"})
            await deployment.log.produce(outgoing_item(run_line), outgoing_item(reflection))
            await deployment.until(lambda: bool(ledger.versions(deployment.log)))

    asyncio.run(learn())
    entry = ledger.versions(deployment.log)[0].entries[0]
    found = run_json("why", entry.id)
    told = [one for one in found["reflections"] if one["trace"]]
    assert told
    assert told[0]["trace"]["task"] == "refund it"
    assert run_json("why", entry.id, "--no-traces")["reflections"][0]["trace"] is None
    assert ", source shop-b" in run("why", entry.id).stdout


def test_why_knows_entries_that_left(learned: Deployment) -> None:
    entry = ledger.versions(learned.log)[0].entries[0]
    run_json("playbook", "revoke", NAME, *entry.evidence)
    assert "no playbook has an entry" in run("why", entry.id).stderr
    found = run_json("why", entry.id, "--playbook", NAME)
    assert (found["version"], found["live"], found["changes"][-1]["kind"]) == (2, False, "remove")
    assert "left after version 2" in run("why", entry.id, "--playbook", NAME).stdout


def test_why_says_that_there_is_no_such_entry(learned: Deployment) -> None:  # noqa: ARG001
    assert "never had an entry nope" in run("why", "nope", "--playbook", NAME).stderr


# ---- cost


def test_cost_sums_what_the_versions_took(learned: Deployment) -> None:
    (row,) = run_json("playbook", "cost")
    made = ledger.versions(learned.log)
    assert (row["name"], row["batches"], row["reflections"]) == (NAME, 2, 20)
    assert row["model_calls"] == sum(one.usage.calls for one in made)
    assert row["tokens"]["in"] == sum(one.usage.tokens_in for one in made)
    assert row["tokens_per_reflection"] == sum(row["tokens"].values()) / 20
    assert run_json("playbook", "cost", NAME) == [row]
    assert NAME in (printed := run("playbook", "cost", NAME).stdout)
    assert "a price: [prices] in combee.toml" in printed
    assert run("playbook", "cost", "nope").exit_code == 1


def test_cost_counts_each_day_once_by_its_last_version() -> None:
    def version(number: int, day: int, tokens: int, cost: float) -> Playbook:
        spend = Spend(day=day, tokens=tokens, cost=cost)
        used = Usage(calls=1, tokens_in=tokens)
        return flat(
            Playbook, name="a", version=number, batch_id="b", batch_sequence=number, origin="batch",
            spend=spend, usage=used, reflections=1,
        )  # fmt: skip

    made = [version(1, 20_000, 10, 0.1), version(2, 20_000, 30, 0.3), version(3, 20_001, 5, 0.05)]
    edit = made[0].model_copy(update={"version": 4, "origin": "edit", "batch": None})
    row = cost_report("a", [[*made, edit]]).model_dump(mode="json")
    assert row["days"] == [
        {"day": "2024-10-04", "tokens": 30, "cost": 0.3},
        {"day": "2024-10-05", "tokens": 5, "cost": 0.05},
    ]
    assert (row["cost"], row["batches"]) == (0.35, 3)


# ---- publish


def test_publish_writes_each_line_to_its_topic(empty: Deployment) -> None:
    lines = [{"key_insight": "look"}, {"task": "t", "answer": "a", "feedback": "f"}, {"key_insight": "again"}]
    text = "\n".join(map(json.dumps, lines))
    result = run("publish", "-", "--playbook", NAME, "--json", stdin=text)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "playbook": NAME,
        "published": {"traces": 1, "reflections": 2, "outcomes": 0},
        "rejected": 0,
    }
    assert [one.key_insight for one in ledger.messages(empty.log, topics.REFLECTIONS, Reflection)] == [
        "look",
        "again",
    ]
    assert [one.playbook for one in ledger.messages(empty.log, topics.TRACES, Trace)] == [NAME]


def test_publish_takes_many_lines_and_gives_the_same_line_the_same_id(empty: Deployment) -> None:
    lines = [json.dumps({"key_insight": f"lesson {n % 300}"}) for n in range(600)]
    assert run("publish", "-", stdin="\n".join(lines)).exit_code == 0
    ids = [one.reflection_id for one in ledger.messages(empty.log, topics.REFLECTIONS, Reflection)]
    assert (len(ids), len(set(ids))) == (600, 300)


def test_publish_names_bad_lines_and_goes_on(empty: Deployment) -> None:
    deep = "[" * 100_000
    text = f'{{"key_insight": "one"}}\nnot json\n{{"question": "q", "target": "t"}}\n{deep}\n'
    result = run("publish", "-", stdin=text)
    assert result.exit_code == 3
    assert "standard input:2: not JSON" in result.stderr
    assert "standard input:3: a sample needs an agent" in result.stderr
    assert "standard input:4: not JSON" in result.stderr
    assert len(ledger.messages(empty.log, topics.REFLECTIONS, Reflection)) == 1
