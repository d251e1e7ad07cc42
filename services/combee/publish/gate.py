"""The gate (the labels ``production`` and ``candidate``) after a verdict, a review or a promotion; pure.

Publish is the writer of labels and of versions. So it also decides about them, and writes both in one transaction.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from combee.adapters.ports import PoisonError
from combee.core.gate import gate as gates
from combee.core.gate.gate import Gate
from combee.core.gate.judges import JUDGES, PERSON
from combee.core.names.identity import content_id
from combee.core.playbook import executing, versions
from combee.core.playbook.comparison import compare
from combee.core.playbook.lineage import evidence, rejecting
from combee.core.playbook.operations import union
from combee.core.playbook.versions import WITHOUT_EFFECT, empty
from combee.publish.basis import (
    SKIP,
    Basis,
    EntriesBetween,
    EvidenceLeft,
    FirstReflection,
    PublishDecision,
    UpdatesBetween,
)
from combee.publish.commands import versions_after
from combee_schemas.command import Command
from combee_schemas.gate import MAX_REJECTED, Verdict
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Playbook, label_key
from combee_schemas.scan import Update


def decide_verdict(basis: Basis, verdict: Verdict) -> PublishDecision:
    """Return what a judge's verdict changes.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError
        If it claims to come from a person, or from an unknown judge.
    """
    if verdict.judge not in JUDGES:
        raise PoisonError(f"there is no judge {verdict.judge}")
    if verdict.judge == PERSON:
        raise PoisonError("a person judges a candidate by a command, not by a verdict")
    verdict = verdict.model_copy(update={"entry_ids": (), "sources": ()})  # only people reject in part
    gate = basis.state.gate(verdict.playbook)
    judged = gates.judged(gate, verdict) if gate else None
    if judged is None:
        return PublishDecision(passed_over=gates.not_judged(gate, verdict) if gate else "there is no gate")
    return _concluded(basis, judged)


def decide_review(basis: Basis, command: Command, offset: int) -> PublishDecision:
    """Return what a person's approval or rejection of a candidate changes.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError
        If there is no such candidate.
    """
    name, gate = command.playbook, basis.state.gate(command.playbook)
    if gate is None:
        raise PoisonError(f"{name} has no gate: there is no candidate to {command.kind}")
    if executing.is_executed(gate.production, command, offset):
        return SKIP
    verdict = Verdict(
        playbook=name,
        candidate=max(command.version, 1),
        production=command.base_version,
        judge=PERSON,
        accepts=command.kind == "approve",
        entry_ids=command.entry_ids,
        sources=command.sources,
        reason=command.reason,
        judged_by=command.issued_by,
        judged_at_ms=command.issued_at_ms,
    )
    judged = gates.judged(gate, verdict)
    if judged is None:
        raise PoisonError(gates.not_judged(gate, verdict))
    commands = versions.remembered(gate.production.commands, command.command_id)
    production = gate.production.model_copy(update={"command_offset": offset, "commands": commands})
    return _concluded(basis, replace(judged, production=production))


def decide_promotion(basis: Basis, command: Command, offset: int) -> PublishDecision:
    """Return the label that a person moves, or the gate whose label it is.

    Raises
    ------
    PoisonError, InapplicableError
        If there is no such version, the label is the candidate's of a gate, or no label can be named so.
    """
    state = basis.state
    newest = state.current(command.playbook)
    known = state.labels.get(label_key(command.playbook, command.label))
    if known is not None and executing.is_executed(known, command, offset):
        return SKIP
    if state.playbooks.get(command.playbook) is None:
        raise PoisonError(f"there is no playbook {command.playbook} to label")
    if not command.label or not 1 <= command.version <= newest.version:
        raise PoisonError(f"{command.playbook} has no version {command.version} to label")
    label = executing.after_promotion(known, command, offset, now_ms=basis.now_ms)
    gate = state.gate(label.playbook)
    if gate is None or label.label not in {PRODUCTION, CANDIDATE}:
        return PublishDecision(labels=(label,))
    if label.label == CANDIDATE:
        raise PoisonError(f"{label.playbook} has a gate, which alone sets the label {CANDIDATE}")
    after, decision = gates.moved(gate, label, now_ms=basis.now_ms)
    return SKIP.with_gate(label.playbook, after, decision)


def _concluded(basis: Basis, gate: Gate) -> PublishDecision:
    """Return what follows from the verdicts: nothing yet, another production version, or a line without batches."""
    name, made, taken_back = gate.production.playbook, tuple[Playbook, ...](), 0
    outcome = gates.conclusion(gate)
    if outcome is None:
        return SKIP.with_gate(name, gate)
    if outcome == "rejected":
        command = rejection(basis, gate)
        if command is not None and command.kind == "reject":
            made = (_without_entries(basis, command),)
        elif command is not None:
            made = versions_after(basis, command)
            taken_back = len(command.reflection_ids)
    after, decision = gates.decided(
        gate, outcome, now_ms=basis.now_ms, taken_back=taken_back, made=made[0].version if made else 0
    )
    return replace(SKIP.with_gate(name, after, decision), versions=made)


# ---- what a rejected candidate was made of


def rejection(basis: Basis, gate: Gate) -> Command | None:
    """Return the command that carries out a rejection: ``reject`` entries, or ``revoke`` what batches taught.

    The batches are those that the candidate has and production has not; if a person rejects sources, only reflections
    of these sources, up to the newest version. None: no batch lies between them, or no judge speaks against them.

    Raises
    ------
    PoisonError
        If the candidate's batches are not known, or no reflection in them comes from these sources.
    """
    assert gate.candidate is not None  # noqa: S101 - it was rejected
    name, number, verdict = gate.candidate.playbook, gate.candidate.version, gate.candidate.verdicts[-1]
    command = partial(
        Command,
        command_id=content_id("reject", name, str(number)),
        playbook=name,
        issued_by=verdict.judged_by,
    )
    if verdict.entry_ids:
        versions = {"version": number, "base_version": gate.production.version}
        return command(kind="reject", entry_ids=verdict.entry_ids, **versions)
    if all(verdict.accepts or verdict.undecided for verdict in gate.candidate.verdicts):
        return None
    production, candidate = _compared(basis, name, gate.production.version, number)
    updates, current = _batches_of(basis, production, candidate), basis.current(name)
    waiting: tuple[str, ...] = ()
    taught = rejecting.taught_by(updates)
    if complaint := rejecting.unknown_sources(name, number, taught, verdict.sources):
        raise PoisonError(complaint)
    if verdict.sources:
        # What they taught while the candidate waited would be the next one.
        since = rejecting.taught_by(_batches_of(basis, production, current))
        ids = union(*(each.get(source, ()) for each in (taught, since) for source in verdict.sources))
        rules = tuple(f"{rejecting.RULE.format(version=number)} {source}" for source in verdict.sources)
    else:
        ids, rules = rejecting.of_batches(updates, current, number, at_once=verdict.judge == PERSON)
        waiting = tuple(islice(_what_is_back(basis, production, candidate, ids) if ids else (), MAX_REJECTED))
    if not rules:
        return None
    return command(
        kind="revoke",
        reflection_ids=ids,
        rules=rules,
        entry_ids=waiting,
        retained_from=basis.read(FirstReflection(basis.state.number)),
    )


def _batches_of(basis: Basis, production: Playbook, made: Playbook) -> list[Update]:
    """Return the updates that led to a version since ``production``, without what was rolled back."""
    versions = {version.version: version for version in _since(basis, production, made)}
    sequences, at = set[int](), versions.get(made.version)
    while at is not None and at.version > production.version:
        is_void = all(change.kind in WITHOUT_EFFECT for change in at.changes)
        reason = at.batch.plan.reason if at.batch else ""
        if at.origin == "batch" and not (is_void and reason == "consolidate"):
            sequences.add(at.batch_sequence)
        line, before = evidence.began_with(at)
        at = versions.get(before) if line == made.name else None
    return [update for update in _updates(basis, production, made) if update.plan.sequence in sequences]


def _what_is_back(
    basis: Basis, production: Playbook, candidate: Playbook, ids: Collection[str]
) -> Iterator[str]:
    """Yield what several batches since ``production`` let agents see, though none of them says it.

    It was proposed again when the first of them was rejected, and would spoil each batch to come. Who taught it may
    have taught what judges accepted, too: it leaves as what nobody supports does.
    """
    promoted = Counter(
        change.entry_id
        for version in _since(basis, production, candidate)
        if version.version > production.version and version.origin == "batch"
        for change in version.changes
        if change.kind == "promote"
    )
    if max(promoted.values(), default=0) < 2:  # noqa: PLR2004 - the first may have stood next to something bad
        return
    version = basis.with_revoked(candidate)
    for entry in basis.read(EvidenceLeft(version.name, version)).entries:
        is_back = promoted[entry.id] > 1 and entry.is_active and not entry.by_hand
        if is_back and frozenset(ids).isdisjoint(entry.evidence):
            yield entry.id


def _since(basis: Basis, production: Playbook, made: Playbook) -> Sequence[Playbook]:
    """Return the versions from ``production`` to another, without their entries but the last."""
    return (*_between(basis, production, made), made)


def _between(
    basis: Basis, before: Playbook, made: Playbook, entry_ids: tuple[str, ...] = ()
) -> Sequence[Playbook]:
    """Return the versions from one up to another, each with these entries alone."""
    start, end = max(0, before.history_offset), made.history_offset
    return basis.read(EntriesBetween(made.name, start, end, entry_ids))


def _without_entries(basis: Basis, command: Command) -> Playbook:
    """Return the version without what ``command.version`` made of entries since ``command.base_version``.

    Raises
    ------
    PoisonError
        If it changed no such entry.
    """
    before, rejected = _compared(basis, command.playbook, command.base_version, command.version)
    if complaint := rejecting.unknown_entries(compare(before, rejected), command.entry_ids):
        raise PoisonError(complaint)
    updates = _updates(basis, before, rejected)
    between = _between(basis, before, rejected, command.entry_ids)
    return executing.after_rejection(
        basis.current(command.playbook),
        command,
        candidate=rejected,
        production=before,
        behind=rejecting.witnesses(updates, rejected, command.entry_ids),
        between=[version for version in between if version.version >= before.version],
        budget_tokens=basis.rules.budget_tokens,
        now_ms=basis.now_ms,
    )


def _compared(basis: Basis, name: str, before: int, after: int) -> tuple[Playbook, Playbook]:
    """Return two versions; the earlier one is empty if there is none.

    Raises
    ------
    PoisonError
        If the later one is not retained.
    """
    made = basis.version(name, after)
    if made is None:
        raise PoisonError(f"version {after} of {name} is not retained: its batches are not known")
    return basis.version(name, before) or empty(name), made


def _updates(basis: Basis, production: Playbook, candidate: Playbook) -> list[Update]:
    return basis.read(UpdatesBetween(candidate.name, production.batch_sequence, candidate.batch_sequence))
