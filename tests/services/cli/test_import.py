"""An import becomes one version, keeps what the file cannot say, and says why if it does not."""

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.ports import Log
from combee.assembly.local import publisher
from combee.cli.playbook import import_export
from combee.cli.shared.sending import commands_on
from combee.core import commands
from combee.core.formats.files import read_playbook, write_playbook
from combee.core.playbook.versions import empty
from combee_schemas.command import Command
from combee_schemas.playbook import MAX_BUDGET_TOKENS, Playbook
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.reading import learned_from, run, run_json, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")
ACE = "## OTHERS\n[misc-00007] helpful=1 harmful=0 :: look twice\n"


def given(text: str = ACE) -> Playbook:
    return read_playbook(text, "ace", name=NAME)


def import_command(current: Playbook, playbook: Playbook) -> Command:
    command = commands.import_(current, playbook, "ace", None)
    assert command
    return command


async def run_command(log: Log, command: Command, timeout_s: float = 10) -> Playbook:
    on = commands_on(log, SystemClock())
    made = await on.outcome(await on.send(command), timeout_s)
    assert isinstance(made, Playbook)
    return made


async def test_the_same_import_sent_twice_has_one_effect_and_going_back_is_a_new_one() -> None:
    deployment = Deployment()
    async with deployment.running(["publish"]):
        first = import_command(empty(NAME), given())
        one = await run_command(deployment.log, first, 10)
        other = import_command(one, given("## OTHERS\n[x] other\n"))
        two = await run_command(deployment.log, other, 10)
        three = await run_command(deployment.log, import_command(two, given()), 10)
        await deployment.log.produce(outgoing(first))
        await deployment.until(lambda: not [k for k in ledger.behind(deployment.log) if k[0] == "publish"])
    assert [two.version, three.version] == [2, 3]
    assert len(ledger.versions(deployment.log)) == 3
    assert first.command_id == import_command(empty(NAME), given()).command_id


def test_an_import_that_nobody_publishes_ends_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_log(monkeypatch, Deployment().log)
    monkeypatch.setattr(publisher, "ensure_publisher", lambda *_: nullcontext())
    (tmp_path / "p.txt").write_text(ACE)
    ended = run("playbook", "import", NAME, str(tmp_path / "p.txt"), "--timeout", "0.05")
    assert ended.exit_code == 1
    assert "has no new version after 0 s" in ended.stderr
    assert "combee status" in ended.stderr


async def test_entries_that_stay_keep_their_evidence() -> None:
    deployment = Deployment(batch_size=10)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
        learned = ledger.latest(deployment.log)
        text = write_playbook(learned, "ace").replace(learned.entries[0].content, "edited by hand")
        edited = await run_command(deployment.log, import_command(learned, given(text)), 10)
    assert edited.entries[0].evidence == ()
    assert edited.entries[0].content == "edited by hand"
    assert all(entry.evidence for entry in edited.entries[1:])


def test_a_file_s_ignored_fields_are_told_of_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deployment = learned_from(monkeypatch)
    lesson = {"key_insight": "Ask for the date.", "keyinsight": "x", "meta": 1, "bullet_tags": []}
    lines = [json.dumps({**lesson, "reasoning": str(number)}) for number in range(3)]
    file = tmp_path / "lessons.jsonl"
    file.write_text("\n".join([*lines, json.dumps({"key_insight": " "})]), "utf-8")
    ended = run("publish", str(file), "--playbook", NAME)
    assert ended.exit_code == 3
    refused, told = sorted(ended.stderr.splitlines(), reverse=True)
    assert refused.startswith(f"{file}:4: the lesson is empty: fill in at least one of key_insight, ")
    assert told == f"{file}: fields that were ignored: keyinsight (did you mean key_insight?), meta"
    deployment.log._store.notify()
    book = tmp_path / "book.json"
    entries = [{"id": f"a-{n}", "section": "A", "content": "x", "contents": "y"} for n in range(2)]
    book.write_text(json.dumps({"entries": entries, "verion": 3}), "utf-8")
    ended = run("playbook", "convert", str(book), "--to", "ace")
    assert ended.stderr.splitlines() == [
        f"{book}: fields that were ignored: contents (did you mean content?), verion (did you mean version?)"
    ]


def test_show_and_status_say_which_budget_an_import_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment()

    async def large_import() -> Playbook:
        lines = (f"[misc-{n:05d}] {n} {'look twice, ' * 30}" for n in range(1, 201))
        async with deployment.running(["publish"]):
            command = import_command(empty(NAME), given("\n".join(["## OTHERS", *lines])))
            return await run_command(deployment.log, command, 10)

    made = asyncio.run(large_import())
    use_log(monkeypatch, deployment.log)
    told = f"budget {made.budget_tokens:,} tokens, which an import brought (COMBEE_PLAYBOOK_TOKENS: 16,000)"
    assert told in run("playbook", "show", NAME).stdout
    assert f"{NAME}: {told}" in run("status").stdout
    assert run_json("status")["playbooks"][0]["budget"] == told
    monkeypatch.setenv("COMBEE_PLAYBOOK_TOKENS", str(MAX_BUDGET_TOKENS))
    assert "budget" not in run("playbook", "show", NAME).stdout
    assert run_json("status")["playbooks"][0]["budget"] is None


def test_an_import_says_which_budget_it_brought(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def carried_out(*_: object, **__: object) -> SimpleNamespace:
        made = given().model_copy(update={"version": 1, "budget_tokens": 37_000})
        return SimpleNamespace(playbook=made, changed=True)

    monkeypatch.setattr(import_export, "carry_out", carried_out)
    (tmp_path / "p.txt").write_text(ACE)
    ended = run("playbook", "import", NAME, str(tmp_path / "p.txt"))
    assert "budget 37,000 tokens, which an import brought (COMBEE_PLAYBOOK_TOKENS: 16,000)" in ended.stdout
