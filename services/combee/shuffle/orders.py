"""Batches that do not come from a window: consolidations, branches, and reflections that are asked about again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from combee.adapters.ports import Clock, Log, TopicPartition
from combee.core.batching import plan
from combee.core.batching.window import Close, Waiting
from combee.core.commands import consolidation
from combee.core.playbook.results.clusters import clusters, has_grown
from combee.core.playbook.shown import shown
from combee.core.playbook.trust import rules_of
from combee.process.worker.provenance import Provenance
from combee.process.worker.views import Playbooks
from combee.shuffle.admission import Admission
from combee.shuffle.cutting import Cutter, base_of
from combee.shuffle.neighbours import NOTHING, Neighbours
from combee.shuffle.partition import ShuffleState
from combee.shuffle.rules import BatchRules
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.plan import Branch, BranchSettings
from combee_schemas.playbook import Asked

ASKED_TOKENS = 32_000
"""Maximum tokens of entries in one consolidation where no bound is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Cuts batches that commands and versions ask for.

    All inputs of the decision are in the log: the next owner of a partition decides the same, and nothing twice.
    """

    log: Log
    clock: Clock
    rules: BatchRules
    admission: Admission
    cutter: Cutter
    playbooks: Playbooks
    neighbours: Neighbours
    provenance: Provenance

    async def cut(self, state: ShuffleState) -> None:
        """Cut every requested batch that nothing holds back; the others wait."""
        for _, command in sorted(state.orders.items()):
            cut = self._fork if command.kind == "branch" else self._consolidate
            if await cut(state, command):
                state.settle_order(command)
        for line in sorted(state.to_ask_again):
            await self._ask_again(state, line)
        for line in sorted(state.grown):
            await self._consolidate_grown(state, line)

    async def _consolidate_grown(self, state: ShuffleState, line: str) -> None:
        """Consolidate without a command if the playbook has grown enough; otherwise check again when it changes."""
        base, rules = self.playbooks.latest(line), self.rules
        is_due = not _has_in_flight(state, line, "consolidate") and has_grown(
            base, rules.settings.consolidate_above, rules.budget_tokens
        )
        if not is_due or await self._consolidate(state, consolidation(base), automatic=True):
            state.grown.discard(line)

    async def _consolidate(self, state: ShuffleState, command: Command, *, automatic: bool = False) -> bool:
        """Cut a consolidation's batch; return whether the order is done, False: it waits."""
        line = command.playbook
        base = self.playbooks.latest(line)
        if self._is_done(state, line, command) or not base.entries or base.holds != "entries":
            return True
        if not self.admission.may_go(state, line):
            return False
        entries = shown(base).entries
        neighbours = NOTHING if command.clusters is not None else self.neighbours.of(line, entries)
        if neighbours is None:
            return False
        settings = self.rules.settings_of(line, state.branches.get(line))
        asked = command.clusters
        if asked is None:
            budget = self.rules.settings.aggregate_tokens or ASKED_TOKENS
            several = len(base.taught_by) > 1
            asked = clusters(entries, budget, neighbours.pairs, rules_of(settings, several=several))
        batch = plan.plan_consolidation(
            line,
            state.manifests.sequences.get(line, 0) + 1,
            asked,
            settings=settings,
            base=base_of(base),
            command_id=command.command_id,
            automatic=automatic,
            embeddings=neighbours.embeddings,
            usage=neighbours.usage,
            through_offset=state.through(line),
            waiting=len(state.windows.get(line, ())),
            closed_at_ms=self.clock.now_ms(),
        )
        # Settled first: the offsets written with the manifest must not count it as open.
        state.settle_order(command)
        await self.cutter.cut(state, batch)
        return True

    async def _ask_again(self, state: ShuffleState, line: str) -> None:
        """Cut a batch of the reflections that a version wants asked again; the rest waits for the batch's version."""
        wanted = self.playbooks.latest(line).again
        if not wanted or _has_in_flight(state, line, "revoke"):
            state.to_ask_again.discard(line)
        elif self.admission.may_go(state, line):
            is_known = partial(state.manifests.knows, line)
            taken = await _read_again(self.log, state.number, wanted, is_known, self.provenance)
            state.to_ask_again.discard(line)
            if taken:
                bodies = await self.cutter.bodies(state, taken)
                close = Close(count=len(taken), reason="revoke")
                await self.cutter.cut(state, self.cutter.planned(state, line, close, taken, bodies), bodies)

    async def _fork(self, state: ShuffleState, command: Command) -> bool:
        """Begin a branch between two batches of its playbook; return whether the order is done, False: it waits.

        Then every reflection of the playbook is in the version that the branch begins with, or in its window.
        """
        line, playbook = command.line, self.playbooks.latest(command.playbook)
        is_there = playbook.version > 0 and playbook.origin != "delete"
        if self._is_done(state, line, command) or line in state.branches or not is_there:
            return True
        if state.manifests.count_in_flight(playbook.name) or state.manifests.count_in_flight(line):
            return False
        branch = Branch(
            of=playbook.name,
            version=playbook.version,
            sequence=playbook.batch_sequence,
            settings=command.settings or BranchSettings(),
        )
        batch = plan.plan_fork(
            line,
            state.manifests.sequences.get(line, 0) + 1,
            branch,
            settings=self.rules.settings_of(line, branch),
            base=base_of(self.playbooks.latest(line)),
            command_id=command.command_id,
            through_offset=state.through(playbook.name),
            closed_at_ms=self.clock.now_ms(),
        )
        # Settled first: the offsets written with the manifest must count its window as waiting, not the order.
        state.settle_order(command)
        state.fork(line, branch)
        await self.cutter.cut(state, batch)
        return True

    def _is_done(self, state: ShuffleState, line: str, command: Command) -> bool:
        """Return whether a command has had its batch."""
        executed = (line, command.command_id) in state.manifests.executed
        return executed or command.command_id in self.playbooks.latest(line).commands


def _has_in_flight(state: ShuffleState, line: str, reason: str) -> bool:
    in_flight = state.manifests.in_flight.get(line, {}).values()
    return any(batch.batch.plan.reason == reason for batch in in_flight)


async def _read_again(
    log: Log,
    partition: int,
    wanted: Sequence[Asked],
    is_known: Callable[[str, int], bool],
    provenance: Provenance,
) -> list[Waiting]:
    """Return the reflections of the next batch, each as its next attempt; expired ones are left out.

    ``is_known`` returns whether an attempt of an id is already in a batch, as after a rollback to before it.
    """
    source = TopicPartition(topic=topics.REFLECTIONS.name, partition=partition)
    first = (await log.beginnings(source.topic))[partition]
    retained = sorted({asked.offset for asked in wanted if asked.offset >= first})
    places = sorted({asked.manifest_offset for asked in wanted})
    manifests = await log.read_at(TopicPartition(topic=topics.BATCHES.name, partition=partition), places)
    members = {
        member.offset: member
        for _, record in sorted(manifests.items())
        if (batch := topics.BATCHES.read_or_none(record)) is not None
        for member in batch.members
    }
    waiting: list[Waiting] = []
    for offset, record in sorted((await log.read_at(source, retained)).items()):
        if offset in members:
            member = members[offset]
            later = count(member.attempt + 1)
            attempt = next(attempt for attempt in later if not is_known(member.reflection_id, attempt))
            member = member.model_copy(update={"attempt": attempt})
            body = provenance.reflection(record, is_reread=True)
            waiting.append(Waiting(member=member, size=len(record.value or b""), seen_at=0.0, body=body))
    return waiting[: plan.go_together([item.size for item in waiting])]
