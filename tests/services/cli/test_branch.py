"""``combee branch`` and ``combee branch adopt``: a branch is made, seen beside its playbook, adopted."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest

from combee.adapters.ports import Log
from combee.assembly.local import publisher
from combee.cli.doctor import probes
from combee.core.formats.editing import editable
from combee.core.log.diagnosis import Check
from combee.process.settings.loading import Settings, load_settings
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.playbook import Spend
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.reading import copied, publish_with, put, run, run_json, use_log
from support.rows import each_row

pytestmark = pytest.mark.usefixtures("quick_polls")
LINE = f"{NAME}@exp"
OWN = ("--set", "batch_size=2", "--set", "copies=1")
SIZE, LATER = 3, 6


async def _learn(deployment: Deployment, numbers: range, lines: int) -> None:
    deployment.log._store.notify()  # a fresh event: the old one belongs to the loop before
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in numbers))
        await deployment.until(
            lambda: (
                ledger.behind(deployment.log) == {} and len(ledger.versions(deployment.log, LINE)) >= lines
            )
        )


@pytest.fixture
def deployment(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:  # noqa: ARG001 - order
    """Return a deployment that has learned, with a branch made by the command line, and has learned on."""
    made = copied(_with_a_branch())
    use_log(monkeypatch, made.log)
    publish_with(monkeypatch, made, "shuffle", "publish")
    return made


@cache
def _with_a_branch() -> Deployment:
    """Return what nobody may change: learning takes longer than most tests."""
    made = Deployment(batch_size=SIZE)
    with pytest.MonkeyPatch.context() as meanwhile:
        use_log(meanwhile, made.log)
        publish_with(meanwhile, made, "shuffle", "publish")
        asyncio.run(_learn(made, range(SIZE), 0))
        run_json("branch", NAME, "--as", "exp", *OWN)
        asyncio.run(_learn(made, range(10, 10 + LATER), 1 + LATER // 2))
    return made


def test_a_branch_is_made_and_says_what_it_does_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Deployment(batch_size=SIZE)
    use_log(monkeypatch, made.log)
    publish_with(monkeypatch, made, "shuffle", "publish")
    asyncio.run(_learn(made, range(SIZE), 0))
    assert run_json("branch", NAME, "--as", "exp", *OWN) == {
        "name": LINE,
        "version": 1,
        "branch": {
            "of": NAME,
            "version": 1,
            "settings": {"batch_size": 2, "copies": 1},
            "instead_of": {"batch_size": None, "copies": None},
        },
        "changed": True,
    }
    other = run("branch", NAME, "--as", "same")
    assert f"{NAME}@same version 1: {SIZE} entries; from a fork of version 1 of {NAME}" in other.stdout
    assert f"'combee branch {NAME}'" in other.stderr


WRONG = [
    (("branch", LINE, "--as", "x"), f"name {NAME} here"),
    (("branch", "--as", "x"), "name the playbook"),
    (("branch", NAME, "--set", "copies=1"), "name it with --as"),
    (("branch", NAME, "--as", "x", "--set", "copies"), "'copies' is not KEY=VALUE"),
    (("branch", "adopt", NAME), f"{NAME} is not a branch"),
    (("learn", "x.jsonl", "--playbook", LINE), f"learns from the reflections of {NAME}"),
    (("publish", "x.jsonl", "--playbook", LINE), f"learns from the reflections of {NAME}"),
    (("replay", LINE, "--to", "x"), f"name {NAME} here"),
    (("archive", LINE, "--to", "x"), f"name {NAME} here"),
]


@each_row(("arguments", "said"), WRONG, ids=lambda given: str(given)[:40])
def test_wrong_usage_is_refused_with_the_remedy(arguments: tuple[str, ...], said: str) -> None:
    ended = run(*arguments)
    assert (ended.exit_code, said in " ".join(ended.stderr.replace("│", " ").split())) == (2, True), (
        ended.stderr
    )


def test_no_name_of_a_branch(deployment: Deployment) -> None:  # noqa: ARG001
    ended = run("branch", NAME, "--as", "a b")
    assert (ended.exit_code, "'a b' is not the name of a branch" in ended.stderr) == (1, True)


def test_a_fork_that_does_not_come_says_what_it_waits_for(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begun() -> None:
        deployment.log._store.notify()
        async with deployment.running(["shuffle"]):
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(30, 30 + SIZE)))
            count = len(ledger.batches(deployment.log))
            await deployment.until(lambda: len(ledger.batches(deployment.log)) > count)

    asyncio.run(begun())
    monkeypatch.setattr(publisher, "ensure_publisher", lambda *_: nullcontext())
    ended = run("branch", NAME, "--as", "late", "--timeout", "0")
    assert ended.exit_code == 1
    assert f"{NAME}@late has no new version after 0 s: the branch is in the log" in ended.stderr
    assert f"{NAME} has no batch in flight (now: 1)" in ended.stderr


def test_lines_are_listed_side_by_side_with_what_each_learned_since_the_fork(deployment: Deployment) -> None:
    rows = run_json("branch", NAME)
    assert rows == run_json("branch"), "no other playbook has branches"
    assert [row["name"] for row in rows] == [NAME, LINE]
    of, own = rows
    assert (of["branch"], of["since"], own["since"]) == (None, 1, 1)
    assert own["branch"]["instead_of"] == {"batch_size": SIZE, "copies": 2}
    assert [row["reflections"] for row in rows] == [LATER, LATER]
    assert [row["batches"] for row in rows] == [LATER // SIZE, LATER // 2]
    made = {line: ledger.versions(deployment.log, line) for line in (NAME, LINE)}
    assert [row["versions"] for row in rows] == [len(made[NAME]) - 1, len(made[LINE])]
    calls = [sum(version.usage.calls for version in made[line]) for line in (NAME, LINE)]
    assert own["model_calls"] == calls[1] > 0
    assert of["model_calls"] == calls[0] - made[NAME][0].usage.calls > 0
    assert [row["retention"] for row in rows] == [1.0, 1.0]
    shown = run("branch", NAME).stdout
    assert f"version 1: batch_size 2 ({SIZE}), copies 1 (2)" in shown


def test_without_branches_it_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Deployment()
    use_log(monkeypatch, made.log)
    assert "no branches yet" in run("branch").stdout
    assert f"there is no playbook {NAME}" in run("branch", NAME).stderr
    asyncio.run(_learn(made, range(10), 0))
    assert f"'combee branch {NAME} --as BRANCH' makes one" in run("branch", NAME).stdout


def test_an_ended_branch_is_no_longer_listed(deployment: Deployment) -> None:  # noqa: ARG001
    run_json("playbook", "delete", LINE, "--yes")
    assert [row["name"] for row in run_json("branch", NAME)] == [NAME]


def test_status_and_the_list_of_playbooks_show_lines_side_by_side(deployment: Deployment) -> None:
    put(deployment, topics.PLAYBOOKS, f"{NAME}-other", encode(_snapshot(deployment, NAME, f"{NAME}-other")))
    rows = run_json("status")["playbooks"]
    assert [row["name"] for row in rows] == [NAME, LINE, f"{NAME}-other"]
    assert [row["batch_size"] for row in rows] == [40, 2, 40]
    assert rows[1]["branch"] == {
        "of": NAME,
        "version": 1,
        "settings": {"batch_size": 2, "copies": 1},
        "instead_of": {"batch_size": SIZE, "copies": 2},
    }
    said = run("status").stdout
    assert f"{LINE}: forked from version 1: batch_size 2 ({SIZE}), copies 1 (2)" in said
    listed = run_json("playbook", "list")
    assert [row["name"] for row in listed] == [NAME, LINE, f"{NAME}-other"]
    assert [row["branch"] is None for row in listed] == [True, False, True]
    assert f"version 1: batch_size 2 ({SIZE}), copies 1 (2)" in run("playbook", "list").stdout
    assert [row["name"] for row in run_json("playbook", "cost")] == [NAME, LINE]


def _snapshot(deployment: Deployment, line: str, name: str, **fields: Any) -> Any:
    return ledger.latest(deployment.log, line).model_copy(update={"name": name, **fields})


def test_a_branch_that_the_common_cap_pauses_shows_why(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = deployment.clock.now_ms() // 86_400_000
    monkeypatch.setattr("combee.adapters.clock.SystemClock.now_ms", lambda _: deployment.clock.now_ms())
    spent = Spend(day=day, tokens=900, tokens_each=10.0, cap_tokens=1000)
    for line, tokens in ((NAME, 900), (LINE, 90)):
        version = _snapshot(
            deployment, line, line, version=99, spend=spent.model_copy(update={"tokens": tokens})
        )
        put(deployment, topics.PLAYBOOKS, line, encode(version))
    rows = {row["name"]: row for row in run_json("status")["playbooks"]}
    assert "990 of 1,000 tokens spent today" in rows[LINE]["paused"]["reason"], "both count"
    assert [row["spend"]["together"]["tokens"] for row in rows.values()] == [990, 990]
    assert "90 of 1,000 (990 on all lines)" in run("branch", NAME).stdout
    for verb in (("status",), ("branch", NAME)):
        assert f"paused: {LINE} until" in run(*verb).stdout


def test_the_doctor_minds_branches(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(batch_timeout_s=1, daily_tokens=1)
    monkeypatch.setattr(
        "combee.adapters.clock.SystemClock.now_ms", lambda _: deployment.clock.now_ms() + 3_600_000
    )

    def verdicts(
        probe: Callable[[Log, Settings], Coroutine[Any, Any, Sequence[Check]]],
    ) -> list[tuple[str, str]]:
        return [(check.verdict, check.says) for check in asyncio.run(probe(deployment.log, settings))]

    ((verdict, says),) = verdicts(probes.branches)
    assert (verdict, f"{LINE} is paused: " in says) == ("warn", True)
    run_json("playbook", "delete", LINE, "--yes")
    assert verdicts(probes.branches) == [("ok", "none")]
    assert verdicts(probes.batches) == [("ok", "none waits")], "what a deleted branch had is published"


def test_why_finds_an_entry_of_both_lines_on_the_playbook(deployment: Deployment) -> None:
    entry = ledger.latest(deployment.log).entries[0].id
    assert run_json("why", entry)["playbook"] == NAME
    assert run_json("why", entry, "--playbook", LINE)["playbook"] == LINE


def test_two_lines_are_compared_entry_by_entry(deployment: Deployment) -> None:
    other = ledger.latest(deployment.log, LINE)
    said, text = other.entries[0].content, "the branch alone says this"
    edited = editable(other).replace(f"{said}\n", f"{text}\n")
    result = run("playbook", "edit", LINE, "--file", "-", stdin=edited)
    assert f"{LINE} version {other.version + 1}" in result.stdout, result.output
    found = run_json("playbook", "diff", NAME, LINE)
    assert (found["from_name"], found["name"]) == (NAME, LINE)
    assert [change["after"] for change in found["changed"]] == [text]
    assert (found["added"], found["removed"]) == ([], [])
    back = run_json("playbook", "diff", LINE, NAME)
    assert (back["from_name"], back["name"]) == (LINE, NAME)
    assert run_json("playbook", "diff", LINE)["name"] == LINE
    assert (
        f"{NAME} version 3 → {LINE} version {other.version + 1}: 1 changed"
        in run("playbook", "diff", NAME, LINE).stdout
    )


def test_what_a_branch_says_is_adopted_and_the_branch_ends_by_deleting_it(deployment: Deployment) -> None:
    before = ledger.latest(deployment.log)
    found = run_json("branch", "adopt", LINE)
    adopted = {"line": LINE, "version": 1 + LATER // 2, "renamed": found["adopted"]["renamed"]}
    assert found == {
        "name": NAME,
        "version": before.version + 1,
        "entries": SIZE + LATER,
        "adopted": adopted,
        "changed": True,
    }
    ended = run("playbook", "delete", LINE, "--yes")
    assert "brings it back, but it learns no more" in ended.stdout
    gone = run("branch", "adopt", LINE)
    assert (gone.exit_code, f"no playbook {LINE} any more" in gone.stderr) == (1, True)
