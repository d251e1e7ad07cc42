"""Compare, label, edit, take back, delete: verbs that make versions, on a log with a real publisher."""

import asyncio
import stat
import tempfile
from pathlib import Path

import pytest

from combee.core import commands
from combee.core.formats.editing import edit_operations, editable
from combee.core.formats.files import read_playbook
from combee.core.gate.policy import GatePolicy
from combee.core.playbook import versions
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.gate import Decision
from combee_schemas.playbook import Entry, Label, Playbook
from combee_schemas.scan import Conflict, Operation, OperationKind, Seen, Update
from support import ledger
from support.deployment import Deployment
from support.gateway import published
from support.ledger import NAME, outgoing, reflection
from support.planned import manifest_of
from support.reading import learned_from, publish_with, run, run_json

pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture
def learned(quick_polls: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:  # noqa: ARG001 - order
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what is kept for a person is kept there
    deployment = learned_from(monkeypatch)
    publish_with(monkeypatch, deployment)
    return deployment


def by_editor(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Let the user's editor be this script; its first argument is the file."""
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(stat.S_IRWXU)
    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("EDITOR", str(path))


def first(deployment: Deployment) -> str:
    return ledger.latest(deployment.log).entries[0].id


# ---- diff


def test_diff_compares_the_newest_version_with_the_one_before(learned: Deployment) -> None:
    found = run_json("playbook", "diff", NAME)
    before, after = ledger.versions(learned.log)
    known = {entry.id for entry in before.entries}
    assert (found["name"], found["from"], found["to"]) == (NAME, 1, 2)
    assert {one["id"] for one in found["added"]} == {entry.id for entry in after.entries} - known
    assert (found["removed"], found["changed"], found["counted"], found["unchanged"]) == ([], [], [], 10)


def test_diff_takes_numbers_labels_and_latest_either_way_round(learned: Deployment) -> None:  # noqa: ARG001
    run_json("playbook", "promote", NAME, "production", "1")
    there = run_json("playbook", "diff", NAME, "production", "latest")
    back = run_json("playbook", "diff", NAME, "2", "production")
    assert there["added"] == back["removed"] != []
    assert run_json("playbook", "diff", NAME, "production") == there


def test_diff_for_people_has_sections_signs_and_old_beside_new(learned: Deployment) -> None:
    text = editable(ledger.latest(learned.log)).replace("lesson 3", "lesson three")
    assert run("playbook", "edit", NAME, "--file", "-", stdin=text).exit_code == 0
    out = run("playbook", "diff", NAME).stdout
    assert f"{NAME} version 2 → 3: 1 changed, 19 unchanged" in out
    assert "@@ OTHERS @@" in out
    assert "] lesson 3\n" in out
    assert "] lesson three\n" in out
    assert [line[0] for line in out.splitlines()[2:]] == ["-", "+"]


def test_diff_names_the_labels_there_are(learned: Deployment) -> None:  # noqa: ARG001
    run_json("playbook", "promote", NAME, "staging", "1")
    result = run("playbook", "diff", NAME, "production")
    assert result.exit_code == 1
    assert "has no label production; there are: staging" in result.stderr


# ---- labels


def test_promote_moves_a_label_once_and_labels_lists_it(learned: Deployment) -> None:
    moved = run_json("playbook", "promote", NAME, "production", "1")
    again = run_json("playbook", "promote", NAME, "production", "1")
    newest = run_json("playbook", "promote", NAME, "production")
    row = {"name": NAME, "label": "production", "version": 1, "previous": None}
    assert moved == {**row, "changed": True}
    assert again == {**row, "previous": 1, "changed": False}
    assert newest == {**row, "version": 2, "previous": 1, "changed": True}
    assert len(ledger.messages(learned.log, topics.LABELS, Label)) == 2
    (listed,) = run_json("playbook", "labels", NAME)
    assert (listed["label"], listed["version"], listed["newest"]) == ("production", 2, 2)
    assert run_json("playbook", "labels", "other") == []
    assert run_json("playbook", "show", NAME, "--label", "production")["version"] == 2


def test_history_and_labels_tell_who_asked(learned: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "maria")
    monkeypatch.setattr("socket.gethostname", lambda: "desk-3")
    run_json("playbook", "rollback", NAME, "1")
    run_json("playbook", "promote", NAME, "production", "3")
    history = run_json("playbook", "show", NAME, "--history")["versions"]
    assert [one["issued_by"] for one in history] == ["", "", "user:maria@desk-3"]
    assert run_json("playbook", "labels", NAME)[0]["issued_by"] == "user:maria@desk-3"
    assert "user:maria@desk-3" in run("playbook", "show", NAME, "--history").stdout
    assert "from rollback by user:maria@desk-3" in run("playbook", "show", NAME).stdout
    commands = ledger.messages(learned.log, topics.COMMANDS, Command)
    assert {one.issued_by for one in commands} == {"user:maria@desk-3"}


def test_a_label_follows_another_label(learned: Deployment) -> None:  # noqa: ARG001
    run_json("playbook", "promote", NAME, "staging", "1")
    assert run_json("playbook", "promote", NAME, "production", "staging")["version"] == 1


@pytest.mark.parametrize("label", ["latest", "12", "a b", "a#b", ""])
def test_what_cannot_be_a_label_is_wrong_usage(label: str) -> None:
    assert run("playbook", "promote", NAME, label).exit_code == 2


# ---- review


def test_a_review_shows_what_is_new_and_moves_the_label_if_one_agrees(learned: Deployment) -> None:
    run_json("playbook", "promote", NAME, "production", "1")
    declined = run("review", NAME, stdin="n\n")
    assert declined.exit_code == 0
    assert f"{NAME} version 1 → 2: 10 added, 10 unchanged" in declined.stdout
    assert "production stays where it is" in declined.stderr
    agreed = run("review", NAME, stdin="y\n")
    assert agreed.stdout.endswith(f"{NAME} production → version 2\n")
    moved = ledger.messages(learned.log, topics.LABELS, Label)
    assert [one.version for one in moved] == [1, 2]


def test_a_review_asks_nobody_in_json_and_nothing_where_nothing_differs(learned: Deployment) -> None:
    found = run_json("review", NAME, "1", "--label", "staging")
    assert (found["label"], found["promoted"], found["from"], found["to"]) == ("staging", False, 0, 1)
    assert ledger.messages(learned.log, topics.LABELS, Label) == []
    assert run_json("review", NAME, "1", "--label", "staging", "--yes")["promoted"] is True
    assert run_json("review", NAME, "1", "--label", "staging", "--yes")["promoted"] is False
    assert run("review", NAME, stdin="").exit_code == 0, "nobody is there to answer"


def with_conflict(learned: Deployment) -> Conflict:
    """Let a third batch end in a rewrite that was not applied, and publish note it."""
    entry = ledger.latest(learned.log).entries[0]
    conflict = Conflict(
        entry_id=entry.id, content="Refund soon", evidence=("r-13",), why="UPDATE would lose 14 days"
    )
    (*_, done) = ledger.messages(learned.log, topics.UPDATES, Update)
    plan = done.plan.model_copy(update={"sequence": 3, "batch_id": "b-3"})
    result = done.result.model_copy(update={"operations": (), "conflicts": (conflict,)})
    third = done.model_copy(update={"plan": plan, "result": result})
    (offset,) = asyncio.run(learned.log.produce(topics.BATCHES.record(manifest_of(third))))
    asyncio.run(learned.log.produce(outgoing(third.model_copy(update={"manifest_offset": offset}))))

    async def published() -> None:
        async with learned.running(["publish"]):
            await learned.until(lambda: ledger.latest(learned.log).batch_sequence == 3)

    learned.log._store.notify()
    asyncio.run(published())
    return conflict


def test_a_review_shows_what_a_rewrite_would_have_lost_and_who_says_what(learned: Deployment) -> None:
    run_json("playbook", "promote", NAME, "production", "1")
    conflict = with_conflict(learned)
    assert ledger.latest(learned.log).entries[0].id == conflict.entry_id
    (said,) = run_json("review", NAME)["conflicts"]
    assert said["id"] == conflict.entry_id
    assert said["why"].startswith("UPDATE would lose 14 days (said by reflection r-")
    assert said["why"].endswith("; (said by reflection r-13): Refund soon")
    out = run("review", NAME, stdin="n\n").stdout
    assert f"@@ conflicts, for a person to decide @@\n~ [{conflict.entry_id}] UPDATE would lose" in out


# ---- review at a gate


@pytest.fixture
def waiting(learned: Deployment) -> Deployment:
    """Return a playbook of which agents read version 2, and version 3 waits for a person."""
    learned.gates = GatePolicy(judges=("approve",))
    assert run("playbook", "rollback", NAME, "1").exit_code == 0
    return learned


def test_a_review_lists_what_waits_at_gates(waiting: Deployment) -> None:  # noqa: ARG001
    (row,) = run_json("review")
    assert (row["name"], row["judges"], row["production"], row["candidate"]) == (NAME, ["approve"], 2, 3)
    assert (
        f"{NAME}: agents read version 2 (gate: approve); version 3 waits for approve since"
        in run("review").stdout
    )
    assert run_json("status")["playbooks"][0]["gate"]["waits_for"] == ["approve"]


def test_without_a_gate_a_review_lists_nothing(learned: Deployment) -> None:  # noqa: ARG001
    assert run_json("review") == []
    assert "no playbook has a gate" in run("review").stderr


def test_a_person_is_shown_the_difference_and_approves(waiting: Deployment) -> None:
    declined = run("review", NAME, stdin="n\n")
    assert f"{NAME} version 2 → 3: 10 removed, 10 unchanged" in declined.stdout
    assert "nothing is decided, version 3 waits for approve" in declined.stderr
    assert run_json("playbook", "show", NAME)["version"] == 2
    agreed = run("review", NAME, "--reason", "seen", stdin="y\n")
    assert agreed.stdout.endswith(f"{NAME}: agents read version 3 from now on\n")
    assert run_json("playbook", "show", NAME)["version"] == 3
    last = ledger.messages(waiting.log, topics.DECISIONS, Decision)[-1]
    assert (last.decided, last.version, last.reason) == ("accepted", 3, "seen")
    assert last.decided_by.startswith("user:")


def test_a_person_rejects_with_a_reason(waiting: Deployment) -> None:
    rejected = run("review", NAME, "--reject", "--reason", "not ours")
    assert rejected.stdout.endswith(f"{NAME}: version 3 is rejected, agents go on reading version 2\n")
    assert run_json("playbook", "show", NAME)["version"] == 2
    assert run_json("playbook", "show", NAME, "--label", "latest")["version"] == 3
    last = ledger.messages(waiting.log, topics.DECISIONS, Decision)[-1]
    assert (last.decided, last.candidate, last.reason) == ("rejected", 3, "not ours")
    again = run("review", NAME, "--reject")
    assert again.exit_code == 2
    assert "has no candidate to reject" in again.stderr


def test_a_review_moves_nothing_past_the_judges_of_a_gate(waiting: Deployment) -> None:
    assert run("review", NAME, "--reject", "--reason", "not ours").exit_code == 0
    for version in ([], ["latest"], ["3"]):
        told = run("review", NAME, *version, "--yes")
        assert f"version 3 of {NAME} is no candidate at its gate" in told.stderr
        assert ledger.messages(waiting.log, topics.DECISIONS, Decision)[-1].decided == "rejected"
    assert run_json("playbook", "show", NAME)["version"] == 2
    assert run_json("review", NAME, "3", "--label", "staging", "--yes")["promoted"] is True


def test_a_person_rejects_entries_at_the_command_line_and_is_told_of_it(waiting: Deployment) -> None:
    gone = [entry["id"] for entry in run_json("review", NAME)["difference"]["removed"]]
    chosen = [option for entry_id in gone[:3] for option in ("--entry", entry_id)]
    rejected = run("review", NAME, "--reject", "--reason", "keep them", *chosen)
    assert rejected.stdout.endswith(
        f"{NAME}: version 3 is rejected in part, the rest of it is the next candidate; agents go on reading"
        " version 2\n"
    )
    assert [entry["id"] for entry in run_json("review", NAME)["difference"]["removed"]] == gone[3:]
    assert ledger.latest(waiting.log).version == 4
    whole = run("review", NAME, "--reject", "--reason", "all of it")
    assert "--entry ID or --source NAME rejects only that" in whole.stderr


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--reject", "--entry", "x-1"), 1, f"version 3 of {NAME} changes no entry x-1: choose of "),
        (
            ("--reject", "--source", "ada"),
            1,
            "has learned nothing, since what agents read, from ada: choose of none",
        ),
        (("--reject", "--source", "ada", "--entry", "x-1"), 1, "name entries or sources to reject, not both"),
        (("--entry", "x-1"), 2, "add --reject and NAME"),
    ],
)
def test_what_cannot_be_rejected_is_refused_with_the_remedy(
    waiting: Deployment, options: tuple[str, ...], code: int, says: str
) -> None:
    told = run("review", NAME, *options)
    assert told.exit_code == code
    assert says in " ".join(told.stderr.replace("│", " ").split())
    assert ledger.latest(waiting.log).version == 3


def test_before_a_version_is_accepted_the_command_line_reads_none(learned: Deployment) -> None:
    learned.gates = GatePolicy(judges=("approve",))
    book = "## OTHERS\n[misc-00001] helpful=0 harmful=0 :: be kind\n"
    assert run("playbook", "import", "new/one", "-", stdin=book).exit_code == 0
    refused = run("playbook", "show", "new/one")
    assert refused.exit_code == 1
    assert "no version of new/one has passed its gate yet" in refused.stderr
    assert run("playbook", "show", "new/one", "--label", "latest").exit_code == 0


# ---- edit


def test_edit_opens_the_editor_and_what_changed_is_the_next_version(
    learned: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (
        "sed -i -e 's/lesson 3$/lesson three/' -e '/lesson 4$/d' \"$1\"\n"
        'printf "\\n- a new one\\n  on two lines\\n" >> "$1"'
    )
    by_editor(monkeypatch, tmp_path, script)
    made = run_json("playbook", "edit", NAME)
    assert (made["version"], made["entries"], made["changed"]) == (3, 20, True)
    assert [change["kind"] for change in made["diff"]] == ["remove", "update", "add"]
    contents = [entry.content for entry in ledger.latest(learned.log).entries]
    assert "lesson three" in contents
    assert "lesson 4" not in contents
    assert contents[-1] == "a new one\non two lines"


def test_keep_shows_agents_what_was_only_proposed(learned: Deployment) -> None:
    newest = ledger.latest(learned.log)
    first, *others = newest.entries
    entries = (first.model_copy(update={"state": "proposed"}), *others)
    book = newest.model_copy(update={"entries": entries}).model_dump_json()
    assert run("playbook", "import", NAME, "-", "--format", "json", stdin=book).exit_code == 0
    assert first.id not in run("playbook", "show", NAME).stdout
    assert "in version 3, only proposed" in run("why", first.id, "--playbook", NAME).stdout
    made = run_json("playbook", "keep", NAME, first.id)
    assert made["diff"] == [{"kind": "promote", "entry_id": first.id, "detail": "by hand"}]
    assert run_json("playbook", "keep", NAME, first.id)["changed"] is False
    assert "promote by hand" in run("why", first.id, "--playbook", NAME).stdout
    refused = run("playbook", "keep", NAME, "misc-99999")
    assert (refused.exit_code, "show support/refunds --all" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("script", "told"),
    [("exit 3", "ended with 3"), ("printf -- '- `a` x\\n- `a` y\\n' > \"$1\"", "the id 'a' is taken")],
)
def test_an_edit_that_fails_changes_nothing(
    learned: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, told: str
) -> None:
    by_editor(monkeypatch, tmp_path, script)
    result = run("playbook", "edit", NAME)
    assert (result.exit_code, told in result.stderr) == (1, True)
    assert len(ledger.versions(learned.log)) == 2


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize("editor", ["", "vim -n", "/usr/bin/nano"])
def test_without_a_terminal_an_edit_says_what_to_do(editor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    refused = run("playbook", "edit", NAME)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{editor or 'vi'} needs a terminal" in refused.stderr
    assert f"combee playbook edit {NAME} --file FILE" in refused.stderr
    monkeypatch.setenv("EDITOR", "cat")
    assert run("playbook", "edit", NAME).exit_code == 0


def test_an_editor_that_is_not_there_is_told_with_the_remedy(
    learned: Deployment,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    assert "set EDITOR, or use --file" in run("playbook", "edit", NAME).stderr


def test_an_edit_of_an_entry_that_changed_meanwhile_is_refused_and_the_text_is_kept(
    learned: Deployment,
) -> None:
    text = editable(ledger.latest(learned.log))
    assert (
        run("playbook", "edit", NAME, "--file", "-", stdin=text.replace("lesson 3", "theirs")).exit_code == 0
    )
    result = run("playbook", "edit", NAME, "--file", "-", stdin=text.replace("lesson 3", "mine"))
    assert result.exit_code == 1
    assert "changed since version 2: the newest is 3" in result.stderr
    kept = Path(result.stderr.split("your text is kept in ")[1].split(";")[0])
    assert kept.read_text() == text.replace("lesson 3", "mine")
    kept.unlink()
    other = run("playbook", "edit", NAME, "--file", "-", stdin=text.replace("lesson 5", "another"))
    assert other.exit_code == 0, "nobody else touched that one"
    contents = {entry.content for entry in ledger.latest(learned.log).entries}
    assert {"theirs", "another"} <= contents


def test_an_edit_is_the_same_command_when_it_is_sent_again(learned: Deployment) -> None:
    newest = ledger.latest(learned.log)
    text = editable(newest).replace("lesson 3", "x")
    first, again = (commands.edit(newest, newest.version, newest, text, None) for _ in range(2))
    assert first
    assert first == again


def test_an_entry_that_moves_to_another_section_keeps_what_it_rests_on() -> None:
    text = "## A\n[a-1] helpful=1 harmful=0 :: one\n## B\n[b-1] helpful=0 harmful=0 :: two\n"
    base = read_playbook(text, "ace", name=NAME)
    known = base.model_copy(
        update={"entries": (base.entries[0].model_copy(update={"evidence": ("r-1",)}), base.entries[1])}
    )
    moved = editable(known).replace("## A\n\n- `a-1` one\n\n## B\n", "## A\n\n## B\n\n- `a-1` one\n")
    removed, added = edit_operations(known, moved)
    assert (removed.kind, removed.entry_ids) == (OperationKind.REMOVE, ("a-1",))
    assert (added.kind, added.section, added.evidence) == (OperationKind.ADD, "B", ("r-1",))


def test_an_untouched_text_means_no_operation_whatever_the_entries_say() -> None:
    odd = ("- a bullet", "## a header", "# a title", "two\nlines\n\n- and more", "`x` y", "(+1 -0) z", " ")
    entries = tuple({"id": f"e-{n}", "section": "S", "content": one} for n, one in enumerate(odd[:-1]))
    base = Playbook.model_validate({"name": NAME, "version": 7, "sections": ("S",), "entries": entries})
    assert edit_operations(base, editable(base)) == ()


# ---- rollback, revoke, delete


def test_revoke_says_how_many_entries_rest_on_less(learned: Deployment, tmp_path: Path) -> None:
    entry = Entry(id="misc-1", section="OTHERS", content="ask", evidence=("r-1", "r-2"), evidence_count=2)
    (tmp_path / "p.json").write_text(Playbook(name=NAME, version=1, entries=(entry,)).model_dump_json())
    run_json("playbook", "import", NAME, str(tmp_path / "p.json"), "--format", "json")
    assert "1 entries rest on fewer reflections now" in run("playbook", "revoke", NAME, "r-1").stderr
    assert ledger.latest(learned.log).entries[0].evidence == ("r-2",)


def test_rules_choose_what_is_revoked_and_the_version_keeps_them(learned: Deployment) -> None:
    made = run_json("playbook", "revoke", NAME, "text:LESSON 3", "id:r-4")
    assert (made["version"], made["entries"], made["revoked"]) == (3, 18, ["r-3", "r-4"])
    newest = ledger.latest(learned.log)
    assert [(each.rule, each.version) for each in newest.revocations] == [("text:LESSON 3", 3), ("id:r-4", 3)]
    assert run_json("playbook", "revoke", NAME, "text:LESSON 3", "id:r-4")["changed"] is False


def test_a_trace_stands_for_its_reflections(learned: Deployment) -> None:
    of_trace = reflection(99).model_copy(update={"trace_id": "t-99"})
    asyncio.run(learned.log.produce(outgoing(of_trace)))
    assert run_json("playbook", "revoke", NAME, "t-99")["revoked"] == ["r-99"]


def test_a_time_range_takes_back_what_came_in_it(learned: Deployment) -> None:
    assert run_json("playbook", "revoke", NAME, "since:1970-01-01")["entries"] == 0
    assert len(ledger.latest(learned.log).revoked) == 20


def test_revoke_lists_what_all_parts_of_a_large_revocation_take_back(
    learned: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "PART_BYTES", 30)
    made = run_json("playbook", "revoke", NAME, "since:1970-01-01")
    assert made["version"] == len(ledger.versions(learned.log)) > 3
    assert sorted(made["revoked"]) == sorted(f"r-{n}" for n in range(20))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("source:nobody", f"{NAME} has no reflection source:nobody"),
        ("since:2999-01-01", f"{NAME} has no reflection since:2999-01-01"),
        ("since:yesterday", "'yesterday' is not a time: write it as 2026-01-31"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(learned: Deployment, rule: str, message: str) -> None:
    result = run("playbook", "revoke", NAME, "r-3", rule)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert len(ledger.versions(learned.log)) == 2


def test_a_dry_run_says_all_of_it_and_changes_nothing(learned: Deployment, tmp_path: Path) -> None:
    copy = Entry(id="misc-1", section="OTHERS", content="lesson 3")
    (tmp_path / "p.json").write_text(Playbook(name="copy", version=1, entries=(copy,)).model_dump_json())
    run_json("playbook", "import", "copy", str(tmp_path / "p.json"), "--format", "json")
    run_json("playbook", "promote", NAME, "production", "1")
    foreseen = run_json("playbook", "revoke", NAME, "r-3", "--dry-run")
    (removed,) = foreseen["removed"]
    assert (removed["content"], foreseen["reflections"], foreseen["rules"]) == (
        "lesson 3",
        ["r-3"],
        ["id:r-3"],
    )
    assert (foreseen["labels"], foreseen["copies"]) == (
        {"production": 1},
        [{"playbook": "copy", "id": "misc-1"}],
    )
    assert foreseen["read_by_batches"] == [2]
    assert foreseen["cost"] == {"reflections_asked_again": 0, "calls": 0}
    text = run("playbook", "revoke", NAME, "r-3", "--dry-run").stdout
    assert f"goes: {removed['id']} lesson 3" in text
    assert "it makes no model call; nothing was changed" in text
    assert len([made for made in ledger.versions(learned.log) if made.name == NAME]) == 2
    assert "copy says the same in misc-1" in run("playbook", "revoke", NAME, "r-3").stderr


def test_a_dry_run_says_it_for_a_branch_too(learned: Deployment) -> None:
    branch = ledger.latest(learned.log).model_copy(update={"name": f"{NAME}@short", "version": 1})
    asyncio.run(published(learned.log, branch))
    (there,) = run_json("playbook", "revoke", NAME, "r-3", "--dry-run")["branches"]
    assert (there["name"], len(there["removed"])) == (branch.name, 1)
    text = run("playbook", "revoke", NAME, "r-3", "--dry-run").stdout
    parts = [text.index(f"on {name}:") for name in (NAME, branch.name)]
    assert parts[0] < text.index("goes: ") < parts[1] < text.rindex("goes: ")


def made_by_third(learned: Deployment, operation: Operation, seen: tuple[Seen, ...]) -> Playbook:
    """Return the version that a third batch with this operation makes."""
    (*_, done) = ledger.messages(learned.log, topics.UPDATES, Update)
    plan = done.plan.model_copy(update={"sequence": 3, "batch_id": "b-3"})
    result = done.result.model_copy(update={"operations": (operation,), "seen": seen})
    third = done.model_copy(update={"plan": plan, "result": result})
    (offset,) = asyncio.run(learned.log.produce(topics.BATCHES.record(manifest_of(third))))
    asyncio.run(learned.log.produce(outgoing(third.model_copy(update={"manifest_offset": offset}))))
    run_json("playbook", "rollback", NAME, "1")  # publish runs, and comes to the update
    (*_, made) = (version for version in ledger.versions(learned.log) if version.origin == "batch")
    return made


def test_a_dry_run_names_what_is_asked_about_again_and_what_that_costs(learned: Deployment) -> None:
    (*_, done) = ledger.messages(learned.log, topics.UPDATES, Update)
    mixed = Operation(kind=OperationKind.ADD, content="of both", evidence=("r-13", "r-14"))
    by = {"r-13": "words", "r-14": "check"}
    seen = (one.model_copy(update={"covered": by.get(one.reflection_id, "")}) for one in done.result.seen)
    made = made_by_third(learned, mixed, tuple(seen))
    assert made.batch_sequence == 3
    run_json("playbook", "rollback", NAME, str(made.version))
    foreseen = run_json("playbook", "revoke", NAME, "r-13", "--dry-run")
    (left,) = foreseen["asked_again"]
    assert (left["kind"], left["sequence"], left["revoked"]) == ("ADD", 3, ["r-13"])
    assert foreseen["cost"] == {"reflections_asked_again": 1, "calls": 3}
    said = run("playbook", "revoke", NAME, "r-13").stderr
    assert "1 reflections are asked about again, in at most 3 calls" in said
    assert "of both" not in {entry.content for entry in ledger.latest(learned.log).entries}


def test_revoke_names_the_labels_that_still_serve_the_text(learned: Deployment) -> None:
    run_json("playbook", "promote", NAME, "production", "2")
    run_json("playbook", "promote", NAME, "staging", "1")
    serving = {"production": 2}  # the first version knew nothing of it
    assert run_json("playbook", "revoke", NAME, "r-13")["labels"] == serving
    again = run("playbook", "revoke", NAME, "r-13")
    assert "production still serves version 2" in again.stderr
    assert "staging" not in again.stderr
    run_json("playbook", "promote", NAME, "production")
    assert run_json("playbook", "revoke", NAME, "r-13")["labels"] == {}
    assert len(ledger.versions(learned.log)) == 3


def test_revoke_names_a_label_that_serves_a_reworded_entry_which_a_rollback_has_left_behind(
    learned: Deployment,
) -> None:
    entry = next(one for one in ledger.latest(learned.log).entries if one.content == "lesson 3")
    reworded = Operation(
        kind=OperationKind.UPDATE, content="lesson 3 twice", entry_ids=(entry.id,), evidence=("r-99",)
    )
    made = made_by_third(learned, reworded, (Seen(reflection_id="r-99", offset=99, covered="words"),))
    assert "lesson 3 twice" in {one.content for one in made.entries}
    run_json("playbook", "promote", NAME, "production", str(made.version))
    run_json("playbook", "rollback", NAME, "2")
    assert run_json("playbook", "revoke", NAME, "r-99")["labels"] == {"production": made.version}


def test_delete_asks_first(learned: Deployment) -> None:
    for answer in ("n\n", ""):
        result = run("playbook", "delete", NAME, stdin=answer)
        assert result.exit_code == 1
        assert f"delete {NAME} (version 2, 20 entries)?" in result.stderr
        assert "nothing was deleted" in result.stderr
    assert len(ledger.versions(learned.log)) == 2
    result = run("playbook", "delete", NAME, stdin="y\n")
    assert result.exit_code == 0
    assert f"'combee playbook rollback {NAME} 2' brings it back" in result.stdout


def test_a_deleted_playbook_is_gone_from_every_verb_until_a_rollback(learned: Deployment) -> None:  # noqa: ARG001
    run_json("playbook", "promote", NAME, "production", "2")
    assert run_json("playbook", "delete", NAME, "--yes") == {"name": NAME, "version": 3, "deleted": True}
    assert run_json("playbook", "list") == []
    assert run_json("playbook", "labels") == []
    assert run_json("status")["playbooks"] == []
    for verb in ("show", "export", "edit", "delete", "diff"):
        assert "there is no playbook" in run("playbook", verb, NAME).stderr
    history = run_json("playbook", "show", NAME, "--history")["versions"]
    assert [row["origin"] for row in history] == ["batch", "batch", "delete"]
    assert f"'combee playbook rollback {NAME} 2' brings it back" in run("playbook", "show", NAME).stderr
    assert "from 1 to 2" in run("playbook", "rollback", NAME, "9").stderr
    assert run_json("playbook", "rollback", NAME, "2")["entries"] == 20
    assert run_json("playbook", "promote", NAME, "production", "2", "--timeout", "5")["changed"] is True
    assert run_json("playbook", "list")[0]["version"] == 4
