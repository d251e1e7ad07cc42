"""``combee review``: a candidate compared with what agents read now, approved or rejected."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError, Log
from combee.cli.playbook.diff import as_document, compared, lines
from combee.cli.playbook.labels import checked_label, move_label
from combee.cli.playbook.lookup import find_version, missing_playbook, resolve_version
from combee.cli.shared.console import confirmed, output, print_json, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, MaybeName, Ref, Servers, Timeout, label_names
from combee.cli.shared.sending import carry_out, commands_on
from combee.cli.shared.settings import deployed_settings
from combee.core.commands import RefusedError
from combee.core.gate.gate import gate_of, gates_of
from combee.core.gate.judges import PERSON
from combee.core.playbook.comparison import Comparison
from combee.core.playbook.versions import empty
from combee.core.text.forms import printable
from combee.log.commands.playbook import Candidate, Commands, PreparedCommand
from combee.log.history import all_labels, labels_of
from combee.log.reports.gate import GateReport, gate_report, judgement_text, verdict_text
from combee.process.settings.loading import Settings
from combee_schemas.playbook import LATEST, PRODUCTION


@dataclass(frozen=True, slots=True)
class _Judged:
    """A person's decision on a candidate."""

    accepts: bool
    reason: str
    entry_ids: tuple[str, ...]
    sources: tuple[str, ...]
    """Parts to reject, with ``entry_ids``; if both are empty, the whole candidate is rejected."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee review support/refunds --reject --reason 'drops the gift cards'")(
        review
    )


def review(
    name: MaybeName = None,
    version: Ref = LATEST,
    *,
    label: Annotated[
        str,
        typer.Option(help="the label that agents read", callback=checked_label, autocompletion=label_names),
    ] = PRODUCTION,
    yes: Annotated[bool, typer.Option("--yes", help="move the label, or approve, without asking")] = False,
    reject: Annotated[
        bool,
        typer.Option(
            "--reject",
            help="reject the candidate: its batches are taken back, unless --entry or --source is given",
        ),
    ] = False,
    entry: Annotated[
        list[str] | None, typer.Option(help="reject only this entry (its id); may be repeated")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="reject only what this source taught; may be repeated")
    ] = None,
    reason: Annotated[str, typer.Option(help="the reason, recorded with the decision")] = "",
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Compare a candidate with what agents read; decide on it.

    Without NAME, list the playbooks whose candidates wait at a gate. For a playbook without a gate, compare the
    newest version with a label, and move the label there on approval.
    """
    if (entry or source) and not (reject and name):
        raise typer.BadParameter(
            "these options name parts to reject: add --reject and NAME", param_hint="--entry, --source"
        )
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    if name is None:
        _list(settings, as_json=as_json)
        return
    is_default = label == PRODUCTION and version == LATEST
    candidate = asyncio.run(_candidate(settings, name)) if is_default else None
    if candidate is not None:
        _show(candidate, as_json=as_json)
        accepts = _accepts(candidate, reject=reject, yes=yes, asks=not as_json)
        judged = (
            None if accepts is None else _Judged(accepts, reason, tuple(entry or ()), tuple(source or ()))
        )
        _judge(candidate, judged, timeout, bootstrap_servers, as_json=as_json)
    elif reject:
        raise typer.BadParameter(f"{name} has no candidate to reject", param_hint="--reject")
    else:
        comparison = asyncio.run(_compared(settings, name, label, version))
        _promote(comparison, label, timeout, bootstrap_servers, yes=yes, as_json=as_json)


def _promote(
    comparison: Comparison, label: str, timeout_s: float, servers: str | None, *, yes: bool, as_json: bool
) -> None:
    name, number = comparison.name, comparison.after
    if not as_json:
        for line in lines(comparison):
            output().print(line, soft_wrap=True)
    question = f"let {label} point at version {number}?"
    agreed = comparison.before != number and (yes or (not as_json and confirmed(question)))
    if agreed:
        asyncio.run(move_label(name, label, str(number), None, timeout_s, servers))
    if as_json:
        print_json({"label": label, "promoted": agreed, **as_document(comparison)})
    elif agreed:
        output().print(f"{name} {label} → version {number}", markup=False)
    else:
        remark(f"{label} stays where it is; 'combee why ENTRY' shows what taught an entry")


async def _compared(settings: Settings, name: str, label: str, ref: str) -> Comparison:
    async with open_log(settings) as (log, _):
        newer = await resolve_version(log, name, ref)
        known = await labels_of(log, name)
        if label == PRODUCTION and gate_of(known) is not None:
            past = f"'combee playbook promote {name} {label} {newer.version}' moves the label past its judges"
            raise FatalError(f"version {newer.version} of {name} is no candidate at its gate: {past}")
        at = known[label].version if label in known else 0
        return await compared(log, await find_version(log, name, at) if at else empty(name), newer)


# ---- at a gate


def _list(settings: Settings, *, as_json: bool) -> None:
    async def candidates() -> dict[str, GateReport]:
        async with open_log(settings) as (log, _):
            return {name: gate_report(gate) for name, gate in gates_of(await all_labels(log)).items()}

    reports = asyncio.run(candidates())
    if as_json:
        print_json([{"name": name, **report.model_dump(mode="json")} for name, report in reports.items()])
        return
    for name, report in reports.items():
        output().print(f"{name}: {report.text}", markup=False, soft_wrap=True)
    if not reports:
        remark("no playbook has a gate: COMBEE_GATE turns it on")


async def _candidate(settings: Settings, name: str) -> Candidate | None:
    """Return the candidate at a playbook's gate, None without a gate or a candidate."""
    async with open_log(settings) as (log, _):
        try:
            return await commands_on(log, SystemClock()).candidate(name)
        except RefusedError as error:
            if error.reason == "absent":
                raise await missing_playbook(log, name) from error
            return None


def _show(candidate: Candidate, *, as_json: bool) -> None:
    if not as_json:
        for line in lines(candidate.difference):
            output().print(line, soft_wrap=True)
        if candidate.sources:
            counts = ", ".join(f"{source} ({count})" for source, count in candidate.sources.items())
            output().print(printable(f"taught by {counts}"), soft_wrap=True, markup=False)
        for verdict in candidate.verdicts:
            output().print(printable(verdict_text(verdict)), soft_wrap=True, markup=False)


def _accepts(candidate: Candidate, *, reject: bool, yes: bool, asks: bool) -> bool | None:
    """Return whether the person approves, None if they decide nothing."""
    if reject:
        return False
    if PERSON not in candidate.waits_for:
        return None
    question = f"approve version {candidate.version} of {candidate.name}?"
    return True if yes or (asks and confirmed(question)) else None


def _judge(
    candidate: Candidate,
    judged: _Judged | None,
    timeout_s: float,
    servers: str | None,
    *,
    as_json: bool,
) -> None:
    name, number, production = candidate.name, candidate.version, candidate.production
    reads = production
    if judged is not None:
        said = asdict(judged)

        async def decide(_log: Log, commands: Commands) -> PreparedCommand:
            return await commands.judge(name, number, production=production, **said)

        reads = asyncio.run(carry_out(name, decide, timeout_s=timeout_s, servers=servers)).version
    if as_json:
        word = {None: None, True: "approve", False: "reject"}[judged.accepts if judged else None]
        print_json({"said": word, "reads": reads, **candidate.model_dump(mode="json")})
        return
    if judged is None:
        waits = ", ".join(candidate.waits_for)
        remark(
            f"nothing is decided, version {number} waits for {waits}; --reject --reason TEXT rejects it, with --entry"
            " ID or --source NAME only that"
        )
    else:
        in_part = bool(judged.entry_ids or judged.sources)
        text = judgement_text(number, reads, candidate.waits_for, accepts=judged.accepts, in_part=in_part)
        output().print(f"{name}: {text}", markup=False)
        if not (judged.accepts or in_part):
            remark("all that its batches taught is taken back; --entry ID or --source NAME rejects only that")
