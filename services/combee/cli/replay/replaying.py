"""``combee replay`` on two open logs: repeat the input step by step and compare the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from combee.adapters.ports import FatalError, Log
from combee.cli.replay.recorded import again, check_replayable
from combee.cli.replay.shadow import Shadow
from combee.core.batching.plan import same_plan
from combee.core.names.identity import content_id
from combee.core.playbook.lineage.rejecting import is_rejection
from combee.log.history import History, messages, newest_snapshots, partition_of
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Update
from combee_schemas.topics import Topic

M = TypeVar("M", bound=Message)
CONTENT = {"sections", "entries", "counters", "holds", "next_id", "revoked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One version of the original: its batch or command, and a fingerprint of its content."""

    version: int
    sequence: int | None
    command_offset: int
    content: str


@dataclass(slots=True, kw_only=True)
class Replayed:
    """Results of a replay."""

    versions: int = 0
    batches: int = 0
    plans_differ: list[int] = field(default_factory=list)
    """Sequences of batches."""
    contents_differ: list[int] = field(default_factory=list)
    """Versions."""
    model_calls: int = 0


def content_of(playbook: Playbook) -> str:
    """Return a fingerprint of a version's content."""
    return content_id("content", playbook.model_dump_json(include=CONTENT))


class Replay:
    """One playbook, from its first version to its newest."""

    def __init__(self, source: Log, name: str, *, recorded: bool = True, timeout_s: float) -> None:
        self._source = source
        self._name = name
        self._recorded = recorded
        self._timeout_s = timeout_s
        self._batches: dict[int, Batch] = {}
        self._updates: dict[int, Update] = {}
        self.steps: list[Step] = []

    async def read(self) -> Sequence[Batch]:
        """Read the history and return the manifests.

        Raises
        ------
        FatalError
            If there is nothing to replay, it has expired, or it rests on a branch or a rejection at the gate.
        """
        check_replayable(self._name)
        async for version in History(self._source).between(self._name, 0):
            self.steps.append(_step(version))
            if version.adopted is not None:
                raise FatalError(
                    f"version {version.version} of {self._name} was adopted from {version.adopted.line}, and a branch"
                    " is not replayed: compare with --variant instead"
                )
            if is_rejection(version):
                raise FatalError(
                    f"version {version.version} of {self._name} was made by a rejection at the gate, which is not"
                    " repeated: compare with --variant instead"
                )
        if not self.steps:
            raise FatalError(
                f"{self._name} has no version to replay; 'combee playbook list' shows the playbooks that have one"
            )
        if self.steps[0].version != 1:
            raise FatalError(f"the first versions of {self._name} have expired: it cannot be replayed")
        for batch in await self._all(topics.BATCHES):
            self._batches[batch.plan.sequence] = batch
        for update in await self._all(topics.UPDATES):
            self._updates.setdefault(update.plan.sequence, update)  # the first result of a batch counts
        return list(self._batches.values())

    async def run(
        self, target: Log, on_step: Callable[[int, int], None] = lambda _done, _total: None
    ) -> Replayed:
        """Repeat all steps in another log; every version is awaited before the next step.

        Raises
        ------
        FatalError
            If input has expired, or the target has such a playbook already.
        StalledError
            If a step has no result in time.
        """
        shadow = Shadow(source=self._source, target=target, name=self._name, timeout_s=self._timeout_s)
        if self._name in await newest_snapshots(target):
            raise FatalError(f"{self._name} exists there already: replay to an unused prefix")
        replayed = Replayed(versions=len(self.steps))
        for done, step in enumerate(self.steps, 1):
            since = dict(await target.ends(topics.HISTORY.name))
            if step.sequence is None:
                await self._command(step, shadow)
            else:
                await self._batch(step.sequence, replayed, shadow)
            _, made = await shadow.next(topics.HISTORY, since, partial(_is_version, step.version))
            replayed.model_calls += 0 if self._recorded or made.batch is None else made.batch.usage.calls
            if content_of(made) != step.content:
                replayed.contents_differ.append(step.version)
            on_step(done, len(self.steps))
        return replayed

    async def _batch(self, sequence: int, replayed: Replayed, shadow: Shadow) -> None:
        """Repeat a batch and compare its plan."""
        original = self._batches[sequence]
        since: dict[int, int] = {}
        if original.plan.reason != "revoke":  # shuffle cuts it after the revocation, perhaps already
            since = dict(await shadow.target.ends(topics.BATCHES.name))
            await self._close(original, shadow)
        place, made = await shadow.next(topics.BATCHES, since, partial(_is_batch, sequence))
        replayed.batches += 1
        if not same_plan(made, original, templates=not self._recorded):
            replayed.plans_differ.append(sequence)
        if self._recorded:
            await shadow.target.produce(topics.UPDATES.record(self._answer(made, place)))

    async def _close(self, original: Batch, shadow: Shadow) -> None:
        """Publish a batch's members and close their window."""
        sequence, update = original.plan.sequence, self._updates.get(original.plan.sequence)
        ids = {member.offset: member.reflection_id for member in original.members}
        offsets = (await shadow.copy(ids, f"batch {sequence}")).values()
        command = Command(
            command_id=original.plan.command_id or f"replay-{sequence}",
            playbook=self._name,
            kind="consolidate" if original.plan.reason == "consolidate" else "flush",
            through_offset=max(offsets, default=-1),
            left_out=update.result.left_out if update else None,
            clusters=original.clusters if original.plan.reason == "consolidate" else None,
        )
        await shadow.target.produce(topics.COMMANDS.record(command))

    def _answer(self, batch: Batch, place: int) -> Update:
        """Return the recorded result of a batch, with its place in the new log."""
        update = self._updates.get(batch.plan.sequence)
        if update is None:
            raise FatalError(
                f"the result of batch {batch.plan.sequence} is not recorded: replay it with --ask"
            )
        offsets = {member.reflection_id: member.offset for member in batch.members}
        seen = (
            reflection.model_copy(update={"offset": offsets.get(reflection.reflection_id, -1)})
            for reflection in update.result.seen
        )
        result = update.result.model_copy(update={"seen": tuple(seen)})
        return update.model_copy(update={"plan": batch.plan, "manifest_offset": place, "result": result})

    async def _command(self, step: Step, shadow: Shadow) -> None:
        source = await partition_of(self._source, topics.COMMANDS, self._name)
        records = await self._source.read_at(source, [step.command_offset])
        if step.command_offset not in records:
            raise FatalError(f"the command behind version {step.version} has expired: it cannot be replayed")
        record = records[step.command_offset]
        command = topics.COMMANDS.read_or_none(record)
        if command is not None and command.kind == "pause":  # it would hold back the steps that follow
            over = command.model_copy(update={"until_ms": 0})
            await shadow.target.produce(topics.COMMANDS.record(over))
            return
        await shadow.target.produce(again(record))

    async def _all(self, topic: Topic[M]) -> list[M]:
        return [message async for message in messages(self._source, topic, self._name)]


def _step(version: Playbook) -> Step:
    return Step(
        version=version.version,
        sequence=version.batch_sequence if version.origin == "batch" else None,
        command_offset=version.command_offset,
        content=content_of(version),
    )


async def _is_version(number: int, playbook: Playbook) -> bool:
    return playbook.version == number


async def _is_batch(sequence: int, batch: Batch) -> bool:
    return batch.plan.sequence == sequence
