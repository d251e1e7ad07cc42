"""The gate in the publish service: what becomes of ``production`` and ``candidate`` with each version and verdict.

Publish writes labels, and takes batches out of a line; so it decides, and what it decides is written with both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from combee.core.gate import gate as rules
from combee.core.gate.canary import with_canary
from combee.core.gate.gate import Conclusion, Gate
from combee.core.gate.policy import NO_GATE, GatePolicy, Judges
from combee.core.identity import content_id
from combee.core.playbook import rejecting
from combee.core.playbook.comparison import compare
from combee.core.playbook.operations import union
from combee.core.playbook.versions import after_rejection, empty, is_executed, remembered
from combee.evidence import updates_between
from combee.history import History
from combee.ports import Clock, Log, Outgoing, PoisonError
from combee.publish.partition import PartitionState
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.gate import Decision, Verdict
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Label, Playbook, label_key
from combee_schemas.scan import Update

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What becomes of gates, and what was decided: one transaction has it, with all that it follows from."""

    gates: Mapping[str, Gate] = field(default_factory=dict)
    """By playbook, as they are to be."""
    decisions: tuple[Decision, ...] = ()

    def records(self, state: PartitionState) -> list[Outgoing]:
        """Return the labels that change, and the decisions."""
        labels = [record for gate in self.gates.values() for record in state.label_records(gate)]
        return [
            *labels,
            *(topics.DECISIONS.record(decision, partition=state.number) for decision in self.decisions),
        ]


NOTHING = Step()


class Gatekeeper:
    """Keeps the gates of the playbooks that ``policy`` gives judges."""

    def __init__(self, log: Log, clock: Clock, policy: GatePolicy = NO_GATE) -> None:
        self._log = log
        self._clock = clock
        self._policy = policy
        self._history = History(log)

    # ---- gates are opened, and candidates found

    async def started(self, state: PartitionState) -> Step:
        """Return what changes where the setting has changed since the last start: gates are turned on and off."""
        step = NOTHING
        for name in state.live_playbooks():
            judges, gate = self._policy.judges_of(name), state.gate(name)
            if gate is None and judges:
                step = self._opened(state, name, judges, step)
            elif gate is not None and judges is not None and gate.judges != judges:
                changed = {name: rules.with_judges(gate, judges)}
                step = replace(step, gates={**step.gates, **changed})
                logger.info("gate", playbook=name, judges=judges)
        return await self.completed(state, (), step)

    def _opened(self, state: PartitionState, name: str, judges: Judges, step: Step) -> Step:
        known = state.labels.get(label_key(name, PRODUCTION))
        current = state.playbooks.get(name)
        gate, decision = rules.opened(name, judges, known, current, now_ms=self._clock.now_ms())
        logger.info("gate", playbook=name, judges=gate.judges, version=gate.production.version)
        return Step(gates={**step.gates, name: gate}, decisions=(*step.decisions, decision))

    async def completed(self, state: PartitionState, made: Iterable[Playbook], step: Step) -> Step:
        """Return a step with the candidates that follow from it, and from the versions that are written with it."""
        newest = {version.name: version for version in made}
        for name, version in newest.items():
            if version.origin == "delete" or name in step.gates:
                continue
            gate = state.gate(name)
            if gate is not None:
                step = replace(step, gates={**step.gates, name: gate})
            elif judges := self._policy.judges_of(name):
                step = self._opened(state, name, judges, step)
        gates = {
            name: with_canary(
                await self._with_candidate(gate, newest.get(name) or state.current(name)),
                self._policy.canary,
                now_ms=self._clock.now_ms(),
            )
            for name, gate in step.gates.items()
        }
        return replace(step, gates=gates)

    async def _with_candidate(self, gate: Gate, newest: Playbook) -> Gate:
        if gate.candidate is not None or not gate.judges:
            return gate
        number = gate.production.version
        production = newest if number == newest.version else None
        if production is None:
            production = await self._history.exactly(newest.name, number) or empty(newest.name)
        return rules.with_candidate(gate, newest, production, now_ms=self._clock.now_ms())

    def marked(self, state: PartitionState, version: Playbook) -> Playbook:
        """Return a version that says whether its playbook has a gate."""
        gated = bool(self._policy.judges_of(version.name)) or state.gate(version.name) is not None
        return version if version.gated == gated else version.model_copy(update={"gated": gated})

    # ---- verdicts

    def said(self, state: PartitionState, command: Command, offset: int) -> Gate | None:
        """Return the gate with what a person says of its candidate; None if the command had its effect already.

        Raises
        ------
        PoisonError
            If there is nothing to say it of.
        """
        name, gate = command.playbook, state.gate(command.playbook)
        if gate is None:
            raise PoisonError(f"{name} has no gate: there is no candidate to {command.kind}")
        if is_executed(gate.production, command, offset):
            return None
        verdict = Verdict(
            playbook=name,
            candidate=max(command.version, 1),
            production=command.base_version,
            judge="approve",
            accepts=command.kind == "approve",
            entry_ids=command.entry_ids,
            sources=command.sources,
            reason=command.reason,
            judged_by=command.issued_by,
            judged_at_ms=command.issued_at_ms,
        )
        judged = rules.judged(gate, verdict)
        if judged is None:
            raise PoisonError(rules.not_judged(gate, verdict))
        commands = remembered(gate.production.commands, command.command_id)
        production = gate.production.model_copy(update={"command_offset": offset, "commands": commands})
        return replace(judged, production=production)

    def judged(self, state: PartitionState, verdict: Verdict) -> Gate | None:
        """Return the gate with a verdict; None if it does not count.

        Raises
        ------
        PoisonError
            If a person is said to have said it.
        """
        if verdict.judge == "approve":
            raise PoisonError("what a person says of a candidate comes as a command, not as a verdict")
        verdict = verdict.model_copy(update={"entry_ids": (), "sources": ()})  # only people reject in part
        gate = state.gate(verdict.playbook)
        judged = rules.judged(gate, verdict) if gate else None
        if judged is None:
            logger.info(
                "verdict_passed_over",
                playbook=verdict.playbook,
                judge=verdict.judge,
                candidate=verdict.candidate,
                reason=rules.not_judged(gate, verdict) if gate else "there is no gate",
            )
        return judged

    def decided(self, gate: Gate, outcome: Conclusion, taken_back: int = 0, made: int = 0) -> Step:
        """Return what a decision about the candidate changes."""
        gate, decision = rules.decided(
            gate, outcome, now_ms=self._clock.now_ms(), taken_back=taken_back, made=made
        )
        return Step(gates={decision.playbook: gate}, decisions=(decision,))

    def moved(self, state: PartitionState, label: Label) -> Step | None:
        """Return what it changes that a person let a label point elsewhere; None: the label is not the gate's.

        Raises
        ------
        PoisonError
            If it is the candidate's.
        """
        gate = state.gate(label.playbook)
        if gate is None or label.label not in {PRODUCTION, CANDIDATE}:
            return None
        if label.label == CANDIDATE:
            raise PoisonError(f"{label.playbook} has a gate, which alone sets the label {CANDIDATE}")
        after, decision = rules.moved(gate, label, now_ms=self._clock.now_ms())
        return Step(gates={label.playbook: after}, decisions=(decision,))

    # ---- what a rejected candidate was made of

    async def rejection(self, state: PartitionState, gate: Gate) -> Command | None:
        """Return the revocation of what the batches between production and the candidate taught.

        Where a person rejects sources, of what they taught. None: there was no such batch, a person made the
        difference; or nothing is known against them.

        Raises
        ------
        PoisonError
            If the candidate's batches are not known, or nothing of them is of such a source.
        """
        assert gate.candidate is not None  # noqa: S101 - it was rejected
        if all(verdict.accepts or verdict.undecided for verdict in gate.candidate.verdicts):
            return None
        name, number, verdict = gate.candidate.playbook, gate.candidate.version, gate.candidate.verdicts[-1]
        taught = rejecting.taught_by(await self._updates(await self._compared(state, gate)))
        if complaint := rejecting.unknown_sources(name, number, taught, verdict.sources):
            raise PoisonError(complaint)
        ids = union(*(taught[source] for source in verdict.sources or taught))
        if not ids:
            return None
        rule = rejecting.RULE.format(version=number)
        return Command(
            command_id=content_id("reject", name, str(number)),
            playbook=name,
            kind="revoke",
            reflection_ids=ids,
            rules=tuple(f"{rule} {source}" for source in verdict.sources) or (rule,),
            retained_from=(await self._log.beginnings(topics.REFLECTIONS.name))[state.number],
            issued_by=verdict.judged_by,
        )

    async def without_entries(
        self, state: PartitionState, gate: Gate, current: Playbook, *, budget_tokens: int
    ) -> Playbook:
        """Return the version without the entries that a person rejects.

        Raises
        ------
        PoisonError
            If the candidate changes no such entry.
        """
        assert gate.candidate is not None  # noqa: S101 - it was rejected
        verdict, compared = gate.candidate.verdicts[-1], await self._compared(state, gate)
        production, candidate = compared
        if complaint := rejecting.unknown_entries(compare(production, candidate), verdict.entry_ids):
            raise PoisonError(complaint)
        rejected = frozenset(verdict.entry_ids)
        start, end = max(0, production.history_offset), candidate.history_offset
        between = [
            version.model_copy(update={"entries": tuple(e for e in version.entries if e.id in rejected)})
            async for version in self._history.between(candidate.name, start, end)
            if version.version >= production.version
        ]
        command = Command(
            command_id=content_id("reject", candidate.name, str(candidate.version)),
            playbook=candidate.name,
            kind="reject",
            entry_ids=verdict.entry_ids,
            issued_by=verdict.judged_by,
        )
        return after_rejection(
            current,
            command,
            candidate=candidate,
            production=production,
            behind=rejecting.witnesses(await self._updates(compared), candidate, verdict.entry_ids),
            between=between,
            budget_tokens=budget_tokens,
            now_ms=self._clock.now_ms(),
        )

    async def _compared(self, state: PartitionState, gate: Gate) -> tuple[Playbook, Playbook]:
        """Return the version that agents read, and the candidate."""
        assert gate.candidate is not None  # noqa: S101 - it was rejected
        name, number = gate.candidate.playbook, gate.candidate.version
        candidate = await self._history.exactly(name, number, state.current(name))
        production = await self._history.exactly(name, gate.production.version)
        if candidate is None:
            raise PoisonError(f"version {number} of {name} is not retained: its batches are not known")
        return production or empty(name), candidate

    async def _updates(self, compared: tuple[Playbook, Playbook]) -> list[Update]:
        production, candidate = compared
        return await updates_between(
            self._log, candidate.name, production.batch_sequence, candidate.batch_sequence
        )
