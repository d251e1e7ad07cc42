"""Methods as plug-ins: found by name, riding in the manifest, refused where they would destroy a playbook."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from combee.adapters.ports import FatalError, Outgoing
from combee.core.methods import ace, gepa
from combee.core.playbook.versions import empty, misfit
from combee.process.settings.batch import BatchSettings
from combee.process.settings.group import SettingsError
from combee.process.settings.methods import GROUP, configured_method, method, names
from combee_schemas.base import Holds
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.trace import Trace
from support import ledger, shown
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo
from support.prompts import INSTRUCTION, PLAYBOOK
from support.rows import each_row

EXAMPLE = shown.ROOT / "examples" / "own_method"


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the example's method, as pip would."""
    code = (EXAMPLE / "combee_verbatim.py").read_text("utf-8")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    (tmp_path / "combee_verbatim.py").write_text(code)
    for group, points in project["entry-points"].items():
        install(tmp_path, group, "\n".join(f"{name} = {module}" for name, module in points.items()))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    method.cache_clear()


def install(folder: Path, group: str, points: str) -> None:
    info = folder / "combee_verbatim-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: combee-verbatim\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}")


# ---- found by name


def test_the_built_in_methods_are_found_by_name() -> None:
    assert (method("ace"), method("gepa")) == (ace, gepa)
    assert names()[:2] == ("ace", "gepa")


def test_an_unknown_method_is_fatal_and_the_message_says_what_there_is() -> None:
    with pytest.raises(FatalError, match=r"no method 'nope', only ace, gepa.*COMBEE_METHOD.*combee\.methods"):
        method("nope")


@pytest.mark.usefixtures("quick_polls", "plug_in")
async def test_the_method_of_the_examples_runs_a_batch_from_traces_to_a_playbook() -> None:
    assert names() == ("ace", "gepa", "verbatim")
    deployment = Deployment(method="verbatim", batch_size=9)
    traces = [
        Trace(trace_id=f"t-{n}", playbook=NAME, task="a task", feedback=f"Ask for the receipt of step {n}!")
        for n in range(9)
    ]
    mute = Trace(trace_id="mute", playbook=NAME, task="a task")
    async with deployment.running():
        await deployment.log.produce(
            *(Outgoing(topic="traces", key=b"t", value=encode(one)) for one in (*traces, mute))
        )
        await deployment.until(lambda: ledger.applied(deployment.log) == 9)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    version = ledger.latest(deployment.log)
    assert (version.method, version.holds) == ("verbatim", "entries")
    assert {entry.content for entry in version.entries} == {one.feedback for one in traces}
    assert all(prompt.system.startswith("House rules: ") for prompt in deployment.model.prompts)
    assert deployment.model.calls == ledger.planned_calls(deployment.log) == 4
    (letter,) = ledger.dead_letters(deployment.log)
    assert (letter.record_id, letter.reason) == ("mute", "the run has no feedback")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("HOLDS = 'entries'", "is not a method: it lacks REBASES, reflect_prompt, .*docs/guide/methods.md"),
        ("import combee.no_such_part", "cannot be loaded: No module named"),
    ],
)
def test_a_plug_in_that_is_no_method_is_refused_by_name(
    code: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"combee_broken_{len(code)}"
    (tmp_path / f"{module}.py").write_text(code)
    install(tmp_path, GROUP, f"broken = {module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FatalError, match=told):
        method("broken")


# ---- batches that overlap


def test_batches_of_a_method_that_does_not_rebase_must_not_overlap() -> None:
    with pytest.raises(SettingsError, match=r"COMBEE_MAX_INFLIGHT_BATCHES is 2.*gepa.*set it to 1"):
        configured_method(BatchSettings(method="gepa", max_inflight_batches=2))
    assert configured_method(BatchSettings(method="gepa", max_inflight_batches=1)) is gepa
    assert configured_method(BatchSettings(method="ace", max_inflight_batches=4)) is ace


async def test_a_shuffler_refuses_to_start_with_such_settings() -> None:
    deployment = Deployment(method="gepa", max_inflight_batches=2)
    with pytest.raises(SettingsError):
        async with deployment.running(["shuffle"]):
            await deployment.until(lambda: False)


# ---- a playbook that another method has learned


@each_row(
    ("playbook", "holds"), [(empty("p"), "components"), (PLAYBOOK, "entries"), (INSTRUCTION, "components")]
)
def test_a_method_fits_a_playbook_that_holds_the_same_or_nothing(playbook: Playbook, holds: Holds) -> None:
    assert misfit(playbook, holds, "m") is None


@pytest.mark.parametrize(("playbook", "holds"), [(PLAYBOOK, "components"), (INSTRUCTION, "entries")])
def test_a_method_does_not_fit_a_playbook_that_holds_something_else(playbook: Playbook, holds: Holds) -> None:
    assert "would turn them into" in (misfit(playbook, holds, "m") or "")


def test_the_refusal_names_the_method_to_go_on_with() -> None:
    learned = PLAYBOOK.model_copy(update={"method": "verbatim", "batch_sequence": 3})
    assert "COMBEE_METHOD=verbatim" in (misfit(learned, "components", "gepa") or "")
    assert "COMBEE_METHOD=gepa" in (misfit(INSTRUCTION, "entries", "ace") or "")


def rewriting(prompt: Prompt) -> Mapping[str, Any]:
    return {"text": "```\nOne text.\n```"} if prompt.reply_name == "text" else echo(prompt)


async def learn(deployment: Deployment, numbers: range, name: str = NAME) -> None:
    count = ledger.applied(deployment.log, name) + len(numbers)
    await deployment.log.produce(*(outgoing(reflection(n, name)) for n in numbers))
    await deployment.until(lambda: ledger.applied(deployment.log, name) == count)


@pytest.mark.usefixtures("quick_polls")
@pytest.mark.parametrize(("first", "other"), [("ace", "gepa"), ("gepa", "ace")])
async def test_with_a_method_that_would_destroy_it_a_playbook_waits_and_goes_on_with_its_own(
    first: str, other: str
) -> None:
    deployment = Deployment(model=ScriptedModel(rewriting), method=first, batch_size=10)
    async with deployment.running():
        await learn(deployment, range(10))
    before = ledger.latest(deployment.log)

    deployment.settings = deployment.settings.model_copy(update={"method": other})
    with structlog.testing.capture_logs() as logs:
        async with deployment.running():
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10, 20)))
            # Another playbook is not held up by the one that waits.
            await learn(deployment, range(10), "other")
            await deployment.until(lambda: any(one["event"] == "method_misfit" for one in logs))
    assert ledger.latest(deployment.log) == before
    assert sum(one["event"] == "method_misfit" for one in logs) == 1

    deployment.settings = deployment.settings.model_copy(update={"method": first})
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 20)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, {NAME: [reflection(n) for n in range(20)]})
    assert ledger.latest(deployment.log).holds == before.holds


@pytest.mark.usefixtures("quick_polls")
async def test_a_batch_is_finished_with_the_method_it_was_planned_with() -> None:
    deployment = Deployment(model=ScriptedModel(rewriting), method="gepa", batch_size=10)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10)))
    async with deployment.running(["shuffle"]):
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 1)
    deployment.settings = deployment.settings.model_copy(update={"method": "ace"})
    async with deployment.running(["scan", "publish"]):
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
    (entry,) = ledger.latest(deployment.log).entries
    assert (entry.section, entry.content) == ("instruction", "One text.")


@pytest.mark.usefixtures("quick_polls")
async def test_a_text_written_for_a_playbook_that_holds_entries_by_now_changes_nothing() -> None:
    deployment = Deployment(model=ScriptedModel(rewriting), method="gepa", batch_size=10)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10)))
    async with deployment.running(["shuffle"]):
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 1)
    imported = Entry(id="misc-00001", section="OTHERS", content="an old lesson")
    await deployment.log.produce(
        outgoing(Command(command_id="i", playbook=NAME, kind="import", entries=(imported,)))
    )
    async with deployment.running(["publish"]):
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
    async with deployment.running(["scan", "publish"]):
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
    version = ledger.latest(deployment.log)
    assert [entry.content for entry in version.entries] == ["an old lesson"]
    assert ("dropped", "ADD: made for components, and the playbook holds entries") in {
        (change.kind, change.detail) for change in version.changes
    }
    assert version.retention_recent == (0.0,)


@pytest.mark.usefixtures("quick_polls")
async def test_ace_reads_the_records_that_gepa_made_of_runs() -> None:
    trace = Trace(trace_id="t", playbook=NAME, task="a task", answer="41", feedback="It is 42.")
    fields = gepa.read_reflection(trace, (), {})
    prompt = ace.aggregate_prompt(
        empty(NAME), [reflection(1).model_copy(update={"key_insight": "", **fields})]
    )
    assert "\nFeedback: It is 42.\n" in prompt.user


def test_of_a_reflector_s_text_far_beyond_its_limit_only_the_beginning_is_read() -> None:
    trace = Trace(trace_id="t-1", playbook=NAME, task="a task")
    body = {"key_insight": "\u200b" * 2 * ace.MAX_FIELD_CHARS + "x"}
    with pytest.raises(ValueError, match="empty"):
        ace.read_reflection(trace, (), body)
