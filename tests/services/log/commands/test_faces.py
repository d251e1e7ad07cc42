"""One command, two faces: the command line and HTTP send the same bytes, accept the same and refuse the same."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from combee.cli.shared.sending import commands_on
from combee.core.formats.editing import editable
from combee.core.formats.files import write_playbook
from combee_schemas import topics
from combee_schemas.codec import decode
from combee_schemas.command import Command
from combee_schemas.plan import Branch
from combee_schemas.playbook import Adopted, Entry, Playbook
from support import ledger
from support.deployment import Deployment
from support.gateway import SharedApplication, asked, labelled, published, version
from support.ledger import NAME, outgoing, reflection
from support.reading import publish_with, run, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")

EVIDENCE = Entry(id="misc-00001", section="OTHERS", content="ask", evidence=("r-1",), evidence_count=1)
FIRST = version(NAME, 1, entries=(EVIDENCE,))
SECOND = version(NAME, 2, "ask", "look twice", commands=("done",))
EMPTIED = version(NAME, 3, entries=(), commands=("done",))
REVOKED = version(NAME, 3, "look twice", revoked=("r-1",), commands=("done",))
DELETED = version(NAME, 4, entries=(), origin="delete", commands=("done", "gone"))
LIVE = (FIRST, SECOND)
GONE = (FIRST, SECOND, EMPTIED, DELETED)
LINE = f"{NAME}@exp"
FORKED = version(LINE, 1, "ask", branch=Branch(of=NAME, version=1, sequence=0), commands=("forked",))
AHEAD = FORKED.model_copy(update={"version": 2, "entries": version(LINE, 2, "look away").entries})
ADOPTED = version(NAME, 3, "ask twice", adopted=Adopted(line=LINE, version=1))
ENDED = version(LINE, 2, entries=(), origin="delete", commands=("forked",))
BACK = version(LINE, 3, "ask")
ACE = "## OTHERS\n[misc-00009] helpful=0 harmful=0 :: hurry\n"
EDITED = editable(SECOND).replace("look twice", "look three times")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A playbook as it stands, and a command as each face is given it."""

    about: str
    verb: str
    arguments: Sequence[str] = ()
    body: dict[str, Any] = field(default_factory=dict)
    stdin: str | None = None
    state: Sequence[Playbook] = LIVE
    refused: str | None = None
    """What both must say."""
    unchanged: bool = False
    group: Sequence[str] = ("playbook",)
    """Where the command line has the verb."""
    roles: Sequence[str] = ("publish",)
    """Who carries it out."""
    name: str = NAME
    """What it is given to."""


def promote(about: str, label: str, number: int | None = None, **more: Any) -> Case:
    arguments = (label,) if number is None else (label, str(number))
    body = {"label": label} | ({} if number is None else {"version": number})
    return Case(about=about, verb="promote", arguments=arguments, body=body, **more)


def rollback(about: str, number: int, **more: Any) -> Case:
    return Case(about=about, verb="rollback", arguments=(str(number),), body={"version": number}, **more)


def edit(about: str, text: str, **more: Any) -> Case:
    body = {"text": text}
    return Case(about=about, verb="edit", arguments=("--file", "-"), stdin=text, body=body, **more)


def import_(about: str, text: str, form: str = "ace", **more: Any) -> Case:
    body = {"text": text, "format": form}
    return Case(about=about, verb="import", arguments=("-", "--format", form), stdin=text, body=body, **more)


def revoke(about: str, *ids: str, **more: Any) -> Case:
    return Case(about=about, verb="revoke", arguments=ids, body={"reflection_ids": list(ids)}, **more)


def delete(about: str, **more: Any) -> Case:
    return Case(about=about, verb="delete", arguments=("--yes",), **more)


def branch(about: str, *own: str, settings: dict[str, Any] | None = None, **more: Any) -> Case:
    """Return a case of the branch ``exp``; ``own`` are its settings as people write them."""
    given = [part for setting in own for part in ("--set", setting)]
    body = {"branch": "exp"} | ({} if settings is None else {"settings": settings})
    arguments = ("--as", "exp", *given)
    return Case(
        **{"about": about, "verb": "branch", "arguments": arguments, "body": body, "group": ()}
        | {"roles": ("shuffle", "publish")}
        | more
    )


def adopt(about: str, number: int | None = None, **more: Any) -> Case:
    arguments = () if number is None else ("--version", str(number))
    body = {} if number is None else {"version": number}
    return Case(
        **{"about": about, "verb": "adopt", "arguments": arguments, "body": body, "group": (), "name": LINE}
        | more
    )


def again(case: Case, command_id: str) -> Case:
    """Return a case under an id of its own."""
    arguments, body = (*case.arguments, "--id", command_id), {**case.body, "command_id": command_id}
    return replace(
        case, about=f"{case.about}, as {command_id}", arguments=arguments, body=body, unchanged=True
    )


APPLICATION = SharedApplication()
NO_MORE = f"there is no playbook {NAME} any more: version 4 deleted it"
NEVER = f"there is no playbook {NAME}"
CASES = [
    promote("a new label", "staging", 1),
    promote("a new label, to the newest", "staging"),
    promote("a label that moves", "production", 2),
    promote("a label that points there", "production", 1, unchanged=True),
    promote("an unknown version", "staging", 7, refused=f"{NAME} has no version 7; the newest is 2"),
    promote("what is deleted", "staging", 1, state=GONE, refused=NO_MORE),
    promote("what never was", "staging", 1, state=(), refused=NEVER),
    rollback("an old version", 1),
    rollback("the newest", 2, unchanged=True),
    again(rollback("a repeat", 1), "done"),
    rollback("an unknown version", 7, refused=f"{NAME} has no version 7; the newest is 2"),
    rollback("to what was empty", 3, state=(*LIVE, EMPTIED, version(NAME, 4, "ask"))),
    rollback("a deleted playbook", 1, state=GONE),
    rollback("a deleted playbook to an empty version", 3, state=GONE),
    rollback("an unknown version of a deleted playbook", 9, state=GONE, refused="from 1 to 3"),
    rollback("what never was", 1, state=(), refused=NEVER),
    edit("an entry", EDITED),
    edit("nothing", editable(SECOND), unchanged=True),
    again(edit("a repeat", EDITED), "done"),
    edit("a text without a title", "## OTHERS\n\n- `misc-00001` ask twice\n"),
    edit("what cannot be read", "- `a` x\n- `a` y\n", refused="the edited text: line 2: the id 'a' is taken"),
    edit(
        "a version that there is not",
        EDITED.replace("version 2", "version 7"),
        refused=f"{NAME} has no version 7; the newest is 2",
    ),
    edit(
        "an entry that changed meanwhile",
        EDITED,
        state=(*LIVE, version(NAME, 3, "ask", "look away")),
        refused="publish refused it: misc-00002 changed since version 2: the newest is 3",
    ),
    edit("what is deleted", EDITED, state=GONE, refused=NO_MORE),
    edit("what never was", EDITED, state=(), refused=NEVER),
    import_("a new playbook", ACE, state=()),
    import_("another content", ACE),
    import_("the same content", write_playbook(SECOND, "ace"), unchanged=True),
    import_("as JSON", FIRST.model_dump_json(), "json"),
    again(import_("a repeat", ACE), "done"),
    again(import_("a repeat on what is deleted", ACE, state=GONE), "done"),
    import_("on what is deleted", ACE, state=GONE),
    import_("a branch that never was", ACE, name=LINE, refused=f"there is no playbook {LINE}"),
    import_("nothing on what is deleted", '{"entries": []}', "json", state=GONE),
    import_("what cannot be read", "no playbook", refused="line 1"),
    import_("what is too large", f"## A\n[x] {'ü' * 480_000}\n", refused="this import of"),
    revoke("what an entry rests on", "r-1", state=(FIRST,)),
    revoke("what is revoked", "r-1", state=(*LIVE, REVOKED), unchanged=True),
    again(revoke("a repeat", "r-1"), "done"),
    revoke("what waits for its batch", "r-99"),
    revoke("what nobody knows", "r-99", "r-typo", "r-7", refused=f"{NAME} has no reflection r-typo, r-7"),
    revoke("what is deleted", "r-1", state=GONE, refused=NO_MORE),
    revoke("what never was", "r-1", state=(), refused=NEVER),
    delete("a playbook"),
    again(delete("a repeat", state=GONE), "gone"),
    delete("what is deleted", state=GONE, refused=NO_MORE),
    delete("what never was", state=(), refused=NEVER),
    branch("as its playbook learns"),
    branch("of its own", "batch_size=5", "carry=off", settings={"batch_size": 5, "carry": False}),
    branch("of an ended branch's name", state=(*LIVE, FORKED, ENDED)),
    again(branch("a repeat", state=(*LIVE, FORKED)), "forked"),
    branch(
        "with a setting that no branch has",
        "batchsize=5",
        settings={"batchsize": 5},
        refused="a branch has no setting batchsize of its own; known are batch_size, copies",
    ),
    branch("with a value that cannot be", "copies=9", settings={"copies": 9}, refused="copies: Input should"),
    branch(
        "an open one",
        state=(*LIVE, FORKED),
        refused=f"there is {LINE} already: delete it first, or give the branch another name",
    ),
    branch("content of its name", state=(*LIVE, FORKED, ENDED, BACK), refused="which learns no more"),
    adopt("the newest version of a branch", state=(*LIVE, FORKED)),
    adopt("one of its versions", 1, state=(*LIVE, FORKED, AHEAD)),
    adopt("what says the same", state=(version(NAME, 1, "ask"), FORKED), unchanged=True),
    adopt("what was adopted just now", state=(*LIVE, FORKED, ADOPTED), unchanged=True),
    again(adopt("a repeat", state=(*LIVE, FORKED)), "done"),
    adopt("a version that there is not", 7, state=(*LIVE, FORKED), refused=f"{LINE} has no version 7"),
    adopt("a branch that has ended", state=(*LIVE, FORKED, ENDED), refused=f"no playbook {LINE} any more"),
    adopt("a branch that never was", refused=f"there is no playbook {LINE}"),
    adopt("a branch of what never was", state=(), refused=NEVER),
    branch("of what is deleted", state=GONE, refused=NO_MORE),
    branch("of what never was", state=(), refused=NEVER),
]  # fmt: skip


@pytest.fixture(autouse=True)
def kept_edits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have refused edits kept in the test's own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a face said, and what was in the log afterwards."""

    refused: str = ""
    version: int | None = None
    labels: dict[str, int] | None = None
    sent: Sequence[Command] = ()
    made: Sequence[dict[str, Any]] = ()


async def prepared(deployment: Deployment, state: Sequence[Playbook]) -> None:
    await published(deployment.log, *state)
    await deployment.log.produce(outgoing(reflection(99)))
    if state and state[-1].origin != "delete":
        await labelled(deployment.log, NAME, "production", 1)


def answered(deployment: Deployment, **said: Any) -> Answer:
    sent = [
        decode(record.value, Command).model_copy(update={"issued_at_ms": 0, "issued_by": ""})
        for record in ledger.records(deployment.log, topics.COMMANDS)
    ]
    versions = [*ledger.versions(deployment.log), *ledger.versions(deployment.log, LINE)]
    made = [timeless(version.model_dump(exclude={"issued_by"})) for version in versions]
    return Answer(sent=sent, made=made, **said)


def timeless(dumped: Any) -> Any:
    """Return what a version says without the times in it."""
    if isinstance(dumped, dict):
        return {
            name: timeless(value)
            for name, value in dumped.items()
            if name not in {"created_at_ms", "closed_at_ms"}
        }
    return dumped


def by_command_line(case: Case, monkeypatch: pytest.MonkeyPatch) -> Answer:
    deployment = Deployment(partitions=1)
    asyncio.run(prepared(deployment, case.state))
    use_log(monkeypatch, deployment.log)
    publish_with(monkeypatch, deployment, *case.roles)
    ended = run(*case.group, case.verb, case.name, *case.arguments, "--json", stdin=case.stdin)
    if ended.exit_code:
        assert ended.exit_code == 1, ended.output
        return answered(deployment, refused=ended.stderr)
    said = json.loads(ended.stdout)
    return answered(deployment, version=said["version"], labels=said.get("labels", {}))


async def by_http(case: Case) -> Answer:
    deployment = Deployment(partitions=1)
    await prepared(deployment, case.state)
    gateway_of_log = asked(deployment.log, application=APPLICATION)
    async with deployment.running(case.roles), gateway_of_log as gateway:
        path = f"/v1/playbooks/{case.name}/{case.verb}?wait_s=10"
        answer = await gateway.client.post(path, json=case.body)
        if not answer.is_success:
            assert answer.status_code < 422, answer.text
            return answered(deployment, refused=answer.json()["detail"])
        said = answer.json()
        assert (answer.status_code, said["done"]) == (200, True)
        return answered(deployment, version=said["version"], labels=said["labels"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.verb} {case.about}")
def test_both_faces_answer_alike(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    line, http = by_command_line(case, monkeypatch), asyncio.run(by_http(case))
    assert line.sent == http.sent
    assert line.made == http.made
    if case.refused:
        assert case.refused in line.refused
        assert case.refused in http.refused
        return
    assert (line.refused, http.refused) == ("", "")
    assert (line.version, line.labels) == (http.version, http.labels)
    assert len(line.sent) == (0 if case.unchanged else 1)


async def test_a_flush_is_the_same_command_from_learn_and_over_http() -> None:
    sent: list[Command] = []
    for face in ("learn", "http"):
        deployment = Deployment(partitions=1)
        await prepared(deployment, LIVE)
        async with asked(deployment.log) as gateway:
            assert (await gateway.context.live.seen()).windows.newest(NAME) == 0
            if face == "http":
                answer = await gateway.client.post(f"/v1/playbooks/{NAME}/flush", json={})
                assert answer.status_code == 202
            else:
                commands = commands_on(deployment.log, deployment.clock)
                decision = await commands.flush(NAME, 0)
                assert decision.command
                await commands.send(decision.command)
        sent += answered(deployment).sent
    assert sent[0] == sent[1]
    assert (sent[0].kind, sent[0].through_offset) == ("flush", 0)
