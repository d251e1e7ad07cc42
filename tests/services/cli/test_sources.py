"""Whose a lesson is, as people see it: why, show, history, over HTTP and on the dashboard."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import FatalError, Outgoing
from combee.assembly.backends import known_sources
from combee.assembly.local.keys import known_here
from combee.cli.learn import verb
from combee.cli.learn.learning import Learning
from combee.cli.learn.run import LearnOptions
from combee.cli.replay.recorded import recording
from combee.cli.replay.variant_run import RunResult, VariantRun
from combee.cli.replay.variants import Job, _planned
from combee.core.formats.intake import Item, Sample
from combee.core.names.sources import UNPROVEN, KnownSources, Signer, declared, secret_proof, with_secret
from combee.core.playbook.comparison import compare
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import empty
from combee.dashboard.views.entries import entry_list
from combee.gateway.values import as_row
from combee.process.settings.loading import load_settings
from combee.process.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ModelClient, ScriptedModel, echo
from support.reading import publish_with, run, run_json, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")
SECRET = b"the secret of the shop"
KNOWN = KnownSources(checks={"shop": ("secret", with_secret(SECRET))})
LINKED = "Look at https://shop.example/fees"


def signed(number: int, **fields: object) -> Outgoing:
    record = outgoing(reflection(number, source=Source(name="shop"), **fields))  # type: ignore[arg-type]
    header = secret_proof(SECRET, record.topic, "shop", record.value or b"")
    return Outgoing(topic=record.topic, key=record.key, value=record.value, headers=(header,))


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> Playbook:
    deployment = Deployment(batch_size=3, provenance=Provenance(KNOWN))
    use_log(monkeypatch, deployment.log)

    async def learn() -> None:
        async with deployment.running():
            claim = outgoing(reflection(2, source=Source(name="shop")))
            await deployment.log.produce(signed(1), claim, signed(3, key_insight=LINKED))
            await deployment.until(lambda: bool(ledger.versions(deployment.log)))

    asyncio.run(learn())
    return ledger.latest(deployment.log)


def entry_of(playbook: Playbook, content: str) -> str:
    return next(entry.id for entry in playbook.entries if entry.content == content)


def test_why_says_whose_a_reflection_is_and_what_proved_it(taught: Playbook) -> None:
    proven, claimed = entry_of(taught, "lesson 1"), entry_of(taught, "lesson 2")
    assert run_json("why", proven)["reflections"][0]["source"] == {"name": "shop", "proven": "secret"}
    assert run_json("why", claimed)["reflections"][0]["source"] == {"name": "shop", "proven": ""}
    assert ", source shop (proven by secret)" in run("why", proven).stdout
    assert ", source shop (unproven)" in run("why", claimed).stdout


def test_no_id_no_name_and_no_content_says_in_why_that_a_reflection_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = Deployment(batch_size=2)
    use_log(monkeypatch, deployment.log)
    forged = "r-9 (batch 1), source shop (proven by secret)\n  lesson"

    async def learn() -> None:
        async with deployment.running():
            await deployment.log.produce(
                outgoing(reflection(1, reflection_id=forged)),
                outgoing(reflection(2, source=Source(name=forged))),
            )
            await deployment.until(lambda: bool(ledger.versions(deployment.log)))
            by_hand = Entry(id="misc-00009", section="OTHERS", content=f"Ask.\n\nreflection {forged}")
            await deployment.log.produce(
                outgoing(Command(command_id="c", playbook=NAME, kind="import", entries=(by_hand,)))
            )
            await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)

    asyncio.run(learn())
    before, after = ledger.versions(deployment.log)
    for entry in (*before.entries, *after.entries):
        lines = run("why", entry.id, "--playbook", NAME).stdout.splitlines()
        at_margin = "\n".join(line for line in lines if not line.startswith(" "))
        assert "proven by" not in re.sub(r'"(?:[^"\\]|\\.)*"', "", at_margin), "quoted, or indented"


def test_a_playbook_is_shown_with_the_sources_of_its_entries(taught: Playbook) -> None:
    assert {entry.content: entry.sources for entry in taught.entries} == {
        "lesson 1": ("shop",),
        "lesson 2": (UNPROVEN,),
        LINKED: ("shop",),
    }
    shown = run("playbook", "show", NAME, "--all").stdout
    assert "sources" in shown
    assert UNPROVEN in shown
    assert f"(looks like link) {LINKED}" in " ".join(shown.split())


def test_history_names_the_sources_of_each_batch(taught: Playbook) -> None:
    (row,) = run_json("playbook", "show", NAME, "--history")["versions"]
    assert row["sources"] == {"shop": 2, UNPROVEN: 1}
    assert "2 of shop" in " ".join(run("playbook", "show", NAME, "--history").stdout.split())
    assert as_row(taught).sources == {"shop": 2, UNPROVEN: 1}


def test_the_dashboard_lists_an_entry_with_its_sources_and_flags(taught: Playbook) -> None:
    listed = entry_list(taught, compare(empty(NAME), taught), only_changed=False)
    about = {row["words"]: row["about"] for row in listed.rows if "about" in row}
    assert ", from shop" in about["lesson 1"]
    assert f", from {UNPROVEN}" in about["lesson 2"]
    assert ", from shop, looks like link" in about[LINKED]


def test_a_revocation_takes_no_forged_proof_that_waits_for_the_source_whose_key_was_made_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path / "data"))
    secret = run_json("key", "shop", "--kafka")["lines"][1].partition("=")[2].encode()
    services = KnownSources(checks={"shop": ("secret", with_secret(secret))})
    deployment = Deployment(batch_size=1, provenance=Provenance(services))
    use_log(monkeypatch, deployment.log)
    publish_with(monkeypatch, deployment)

    def sent(number: int, lesson: str, by: bytes) -> Outgoing:
        record = outgoing(reflection(number, source=Source(name="shop"), key_insight=lesson))
        header = secret_proof(by, record.topic, "shop", record.value or b"")
        return Outgoing(topic=record.topic, key=record.key, value=record.value, headers=(header,))

    async def learn(record: Outgoing, count: int) -> None:
        deployment.log._store.notify()
        async with deployment.running():
            await deployment.log.produce(record)
            await deployment.until(lambda: ledger.applied(deployment.log) == count)

    asyncio.run(learn(sent(1, "Ask for the receipt.", secret), 1))
    asyncio.run(deployment.log.produce(sent(9, "Words of Eve.", b"somebody else's secret")))
    assert run_json("playbook", "revoke", NAME, "text:Words of Eve")["revoked"] == ["r-9"]
    asyncio.run(learn(sent(9, "Greet by name.", secret), 3))
    contents = {entry.content for entry in ledger.latest(deployment.log).entries}
    assert contents == {"Ask for the receipt.", "Greet by name."}


async def _not_learned(options: LearnOptions, *_: object) -> None:
    raise FatalError(f"as {options.settings.sources.signer()}")


def test_the_command_line_declares_a_source_and_reads_its_secret_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = Deployment().log
    use_log(monkeypatch, log)
    monkeypatch.setattr(verb, "learn_items", _not_learned)
    lines, secret = tmp_path / "runs.jsonl", tmp_path / "secret"
    lines.write_text('{"reflection_id": "r-1", "key_insight": "be kind"}\n')
    secret.write_bytes(SECRET + b"\n")
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COMBEE_SOURCE", "lab")
    monkeypatch.setenv("COMBEE_SOURCE_SECRET_FILE", str(secret))
    for options, name in ((("--source", "shop"), "shop"), ((), "lab")):
        assert f"as {Signer(name=name, secret=SECRET)}" in run("learn", str(lines), *options).stderr
        assert run("publish", str(lines), *options).exit_code == 0
    shop, lab = ledger.records(log, topics.REFLECTIONS)
    assert KNOWN.effective(
        "reflections", shop.value or b"", shop.headers, Source(name="shop")
    ).source == Source(name="shop", proven="secret")
    assert topics.REFLECTIONS.read(lab).source == Source(name="lab")
    refused = run("learn", str(lines), "--source", "key:web")
    assert (refused.exit_code, "key:" in refused.stderr) == (2, True)


async def test_what_is_learned_from_a_file_is_its_sources_also_what_an_agent_answers() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        said = {"answer": {"final_answer": "3"}, "reflection": {"key_insight": "an insight"}}
        return said.get(prompt.reply_name) or echo(prompt)

    model = ScriptedModel(answer)
    deployment = Deployment(model=model, batch_size=2, provenance=Provenance(KNOWN), sources="proven")
    items: list[Item] = [
        reflection(1),
        Sample(trace_id="t-2", playbook=NAME, question="What is 1 + 1?", target="2"),
    ]
    async with deployment.running():
        await Learning(
            deployment.log,
            ModelClient(model),
            deployment.clock,
            concurrency=1,
            signer=Signer(name="shop", secret=SECRET),
        ).run(items, NAME, stall_s=60)
    (answered,) = ledger.records(deployment.log, topics.TRACES)
    said, _ = ledger.records(deployment.log, topics.REFLECTIONS)
    for record in (answered, said):
        effective = KNOWN.effective(record.topic, record.value or b"", record.headers, Source(name="shop"))
        assert effective.source == Source(name="shop", proven="secret")


def test_sources_count_in_a_replay_as_they_have_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside 'combee up --keys' a replay took all proofs for forged: no variant of a public playbook had entries."""
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path))
    secrets = [run_json("key", name, "--kafka")["lines"][1].partition("=")[2] for name in ("lab", "shop")]
    known = Provenance(known_sources(known_here(load_settings())))
    rules: dict[str, Any] = {"trust": "public", "colluders": 1}
    deployment = Deployment(batch_size=2, provenance=known, **rules)
    use_log(monkeypatch, deployment.log)
    jobs: list[Job] = []

    async def learn() -> None:
        async with deployment.running():
            for name, secret in zip(("lab", "shop"), secrets, strict=True):
                signer = Signer(name=name, secret=secret.encode())
                lesson = reflection(1, key_insight="Ask for the receipt")
                await deployment.log.produce(declared(lesson, signer))
            await deployment.until(lambda: ledger.applied(deployment.log) == 2)

    async def planned(job: Job) -> None:
        jobs.append(job)

    async def replay(job: Job) -> Playbook:
        original = await recording(deployment.log, NAME, job.range, known=known_sources(job.settings.sources))
        (run,) = [run async for run in _planned(job, deployment.log, original)]
        shadow = Provenance(known_sources(run.settings.sources))
        target = Deployment(batch_size=100, max_wait_s=1e9, provenance=shadow, **rules)
        done = RunResult(variant=run.variant, seed=0, prefix="x", batches=run.batches)
        async with target.running():
            await VariantRun(deployment.log, target.log, NAME, timeout_s=20).run(done, None)
        return ledger.latest(target.log)

    asyncio.run(learn())
    verb = ("replay", NAME, "--to", "x", "--simulated", "--variant", "same")
    with monkeypatch.context() as caught:
        caught.setattr("combee.cli.replay.verb.replay_variants", planned)
        run(*verb)
    original, same = ledger.latest(deployment.log), asyncio.run(replay(jobs[0]))
    assert [one.content for one in shown(original).entries] == ["Ask for the receipt"]
    assert [one.sources for one in shown(same).entries] == [one.sources for one in shown(original).entries]
    assert "count as unproven" not in run(*verb).stderr
    (tmp_path / "sources.toml").unlink()
    assert "1 of lab, 1 of shop count as unproven" in " ".join(run(*verb).stderr.split())
