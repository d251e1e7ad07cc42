"""Batches that no window makes: consolidations, branches, and reflections that are asked about again."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from combee.adapters.ports import TopicPartition
from combee.core.batching import plan
from combee.core.batching.window import Taken, Waiting
from combee.core.commands import consolidation
from combee.core.playbook.results.clusters import clusters, has_grown
from combee.core.playbook.shown import shown
from combee.core.playbook.trust import rules_of
from combee.shuffle.cutting import Cutter
from combee.shuffle.neighbours import NOTHING, Neighbours
from combee.shuffle.partition import ShuffleState
from combee.shuffle.rules import BatchRules
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.plan import Branch, BranchSettings
from combee_schemas.playbook import Asked, Playbook

ASKED_TOKENS = 32_000
"""Maximum tokens of entries in one consolidation where no bound is set."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Cuts batches that commands and versions ask for.

    All inputs of the decision are in the log: the next owner of a partition decides the same, and nothing twice.
    """

    rules: BatchRules
    cutter: Cutter
    neighbours: Neighbours

    async def cut(self, state: ShuffleState) -> None:
        """Cut every requested batch that nothing holds back; the others wait."""
        for _, command in sorted(state.orders.items()):
            await self._carry_out(state, command)
        for line in sorted(state.to_ask_again):
            await self._ask_again(state, line)
        for line in sorted(state.grown):
            await self._consolidate_grown(state, line)

    async def _carry_out(self, state: ShuffleState, command: Command, *, automatic: bool = False) -> bool:
        """Cut the batch of a command, unless it has had its batch; return whether it is done, False: it waits."""
        batch, playbook = None, self.cutter.playbooks.latest(command.playbook)
        if not self._is_done(state, command, playbook):
            if command.kind == "branch":
                batch = self._fork(state, command, playbook)
            else:
                batch = self._consolidated(state, command, playbook, automatic=automatic)
            if batch is None:
                return False
        # Before the batch is written: its transaction commits offsets beyond the order, and none beyond the window of
        # a fork.
        state.settle_order(command)
        if batch is not None:
            if batch.plan.branch is not None:
                state.fork(command.line, batch.plan.branch)
            await self.cutter.write(state, batch)
        return True

    def _is_done(self, state: ShuffleState, command: Command, playbook: Playbook) -> bool:
        """Return whether a command has had its batch, or there is nothing to do."""
        line, command_id = command.line if command.kind == "branch" else command.playbook, command.command_id
        executed = (line, command_id) in state.manifests.executed
        if executed or command_id in self.cutter.playbooks.latest(line).commands:
            return True
        if command.kind == "branch":
            return line in state.branches or playbook.version == 0 or playbook.origin == "delete"
        return not playbook.entries or playbook.holds != "entries"

    def _consolidated(
        self, state: ShuffleState, command: Command, base: Playbook, *, automatic: bool
    ) -> Batch | None:
        """Return a consolidation's batch; None: it waits."""
        line = command.playbook
        if self.rules.waits_for(state, line):
            return None
        entries = shown(base).entries
        neighbours = NOTHING if command.clusters is not None else self.neighbours.of(line, entries)
        if neighbours is None:
            return None
        settings = self.rules.settings_of(line, state.branches.get(line))
        asked = command.clusters
        if asked is None:
            budget = self.rules.settings.aggregate_tokens or ASKED_TOKENS
            several = len(base.taught_by) > 1
            asked = clusters(entries, budget, neighbours.pairs, rules_of(settings, several=several))
        return plan.plan_consolidation(
            line,
            state.manifests.next_sequence(line),
            asked,
            settings=settings,
            base=plan.base_of(base),
            command_id=command.command_id,
            automatic=automatic,
            embeddings=neighbours.embeddings,
            usage=neighbours.usage,
            through_offset=state.through(line),
            waiting=len(state.windows.get(line, ())),
            closed_at_ms=self.cutter.clock.now_ms(),
        )

    def _fork(self, state: ShuffleState, command: Command, playbook: Playbook) -> Batch | None:
        """Return the first batch of a branch, which begins between two batches of its playbook; None: it waits.

        Then every reflection of the playbook is in the version that the branch begins with, or in its window.
        """
        line = command.line
        if state.manifests.count_in_flight(playbook.name) or state.manifests.count_in_flight(line):
            return None
        branch = Branch(
            of=playbook.name,
            version=playbook.version,
            sequence=playbook.batch_sequence,
            settings=command.settings or BranchSettings(),
        )
        return plan.plan_fork(
            line,
            state.manifests.next_sequence(line),
            branch,
            settings=self.rules.settings_of(line, branch),
            base=plan.base_of(self.cutter.playbooks.latest(line)),
            command_id=command.command_id,
            through_offset=state.through(playbook.name),
            closed_at_ms=self.cutter.clock.now_ms(),
        )

    async def _consolidate_grown(self, state: ShuffleState, line: str) -> None:
        """Consolidate without a command if the playbook has grown enough; otherwise check again when it changes."""
        base, rules = self.cutter.playbooks.latest(line), self.rules
        is_due = not _has_in_flight(state, line, "consolidate") and has_grown(
            base, rules.settings.consolidate_above, rules.budget_tokens
        )
        if not is_due or await self._carry_out(state, consolidation(base), automatic=True):
            state.grown.discard(line)

    async def _ask_again(self, state: ShuffleState, line: str) -> None:
        """Cut a batch of the reflections that a version wants asked again; the rest waits for the batch's version."""
        wanted = self.cutter.playbooks.latest(line).again
        if not wanted or _has_in_flight(state, line, "revoke"):
            state.to_ask_again.discard(line)
        elif not self.rules.waits_for(state, line):
            items = await self._read_again(state, line, wanted)
            state.to_ask_again.discard(line)
            if items:
                waiting = len(state.windows.get(line, ()))
                await self.cutter.cut(state, line, Taken(reason="revoke", items=items, waiting=waiting))

    async def _read_again(self, state: ShuffleState, line: str, wanted: Sequence[Asked]) -> list[Waiting]:
        """Return the reflections of the next batch, each as its next attempt; expired ones are left out."""
        log, source = self.cutter.log, TopicPartition(topic=topics.REFLECTIONS.name, partition=state.number)
        first = (await log.beginnings(source.topic))[state.number]
        retained = sorted({asked.offset for asked in wanted if asked.offset >= first})
        places = sorted({asked.manifest_offset for asked in wanted})
        manifests = await log.read_at(
            TopicPartition(topic=topics.BATCHES.name, partition=state.number), places
        )
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
                # An attempt may be in a batch already, as after a rollback to before it.
                knows = state.manifests.knows
                later = count(member.attempt + 1)
                attempt = next(number for number in later if not knows(line, member.reflection_id, number))
                body = self.cutter.provenance.reflection(record, is_reread=True)
                member = member.model_copy(update={"attempt": attempt})
                waiting.append(Waiting(member=member, size=len(record.value or b""), seen_at=0.0, body=body))
        return waiting[: plan.go_together([item.size for item in waiting])]


def _has_in_flight(state: ShuffleState, line: str, reason: str) -> bool:
    in_flight = state.manifests.in_flight.get(line, {}).values()
    return any(batch.batch.plan.reason == reason for batch in in_flight)
