"""One variant with one seed, under its own topic prefix, fed step by step and resumable."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError, Log
from combee.cli.replay.shadow import Shadow
from combee.core.log.replaying.steps import Arrival, is_cut_as
from combee.core.log.replaying.variant import Variant
from combee.core.names.identity import given_identity
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands
from combee.log.history import History, messages, newest_playbook, partition_of
from combee.log.inspection.tracker import StalledError
from combee_schemas import topics
from combee_schemas.playbook import Playbook

ISSUER = "replay "
"""Start of ``issued_by`` of a replay's commands; the digest of the variant's input follows."""


@dataclass(slots=True, kw_only=True)
class RunResult:
    """One run: its plan, and after the run its results."""

    variant: Variant
    seed: int
    prefix: str
    batches: list[tuple[Arrival, ...]]
    versions: list[Playbook] = field(default_factory=list)
    """The versions, without their entries."""
    newest: Playbook | None = None
    seconds: dict[int, float] = field(default_factory=dict)
    """Seconds from each batch's closing to its version, by the batch's place."""


class VariantRun:
    """Feeds a shadow of one playbook and waits for the results."""

    def __init__(self, source: Log, target: Log, name: str, *, timeout_s: float, made_with: str = "") -> None:
        self._shadow = Shadow(source=source, target=target, name=name, timeout_s=timeout_s)
        self._target = target
        self._name = name
        self._issuer = f"{ISSUER}{made_with}"

    async def run(
        self,
        done: RunResult,
        base: Playbook | None,
        on_step: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> RunResult:
        """Do the remaining steps.

        Raises
        ------
        FatalError
            If the prefix holds something else.
        StalledError
            If a step has no result in time.
        """
        await self._begin(base)
        published = await self._published(done.batches)
        applied = await self._applied()
        for place, batch in enumerate(done.batches):
            on_step(place, len(done.batches))
            last = batch[-1].reflection_id
            if last in applied:
                continue
            ends = dict(await self._target.ends(topics.HISTORY.name))
            # A step that was in progress when a replay was killed may have been applied since the last check.
            if last in published and last in await self._applied():
                continue
            through = await self._publish(batch, published)
            commands = Commands(self._target, LogStore(self._target), SystemClock(), issued_by=self._issuer)
            decision = await commands.flush(self._name, through)
            if decision.command is not None:
                await commands.send(decision.command)
            await self._shadow.next(topics.HISTORY, ends, partial(self._has, last))
        on_step(len(done.batches), len(done.batches))
        return await self.read(done)

    async def is_complete(self, batches: Sequence[Sequence[Arrival]]) -> bool:
        """Return whether every batch is applied, so that no services are needed.

        Raises
        ------
        FatalError
            If the prefix holds something else.
        """
        await self._published(batches)
        applied = await self._applied()
        return all(arrival.reflection_id in applied for batch in batches for arrival in batch)

    async def _begin(self, base: Playbook | None) -> None:
        """Import the base version into the shadow if the shadow is empty."""
        newest = await newest_playbook(self._target, self._name)
        if newest is not None or base is None:
            return
        commands = Commands(self._target, LogStore(self._target), SystemClock(), issued_by=self._issuer)
        decision = await commands.import_(
            self._name, base, "json", command_id=f"replay-base-{base.version}", by_hand=False
        )
        if decision.command is not None:
            made = await commands.carried_out(decision.command, self._shadow.timeout_s)
            if made is None:
                raise StalledError(
                    f"version {base.version} was not imported within {self._shadow.timeout_s:g} s"
                )

    async def _published(self, batches: Sequence[Sequence[Arrival]]) -> dict[str, int]:
        """Return the offsets of records published already; refuse records of another replay."""
        async for command in messages(self._target, topics.COMMANDS, self._name):
            if command.issued_by.startswith(ISSUER) and command.issued_by != self._issuer:
                raise FatalError(
                    "its prefix holds this variant with other settings, or another model: choose another --to,"
                    " or give the variant another name"
                )
        manifests = [batch async for batch in messages(self._target, topics.BATCHES, self._name)]
        if not is_cut_as(batches, manifests):
            raise FatalError(
                "its prefix holds this variant with batches of another size or range: choose another --to, or give"
                " the variant another name"
            )
        wanted = {arrival.reflection_id for batch in batches for arrival in batch}
        there: dict[str, int] = {}
        source = await partition_of(self._target, topics.REFLECTIONS, self._name)
        async with aclosing(self._target.read(source, 0)) as records:
            async for record in records:
                for reflection in topics.REFLECTIONS.under(self._name, [record]):
                    own_id = given_identity(record.headers) or reflection.reflection_id
                    if own_id not in wanted:
                        raise FatalError(
                            f"its prefix holds reflections that this replay does not have ({own_id}): choose"
                            " another --to"
                        )
                    there.setdefault(own_id, record.offset)
        return there

    async def _applied(self) -> set[str]:
        sequences = {
            version.batch_sequence
            async for version in History(self._target).between(self._name, 0)
            if version.origin == "batch"
        }
        return {
            member.reflection_id
            async for batch in messages(self._target, topics.BATCHES, self._name)
            if batch.plan.sequence in sequences
            for member in batch.members
        }

    async def _has(self, reflection_id: str, version: Playbook) -> bool:
        """Return whether a reflection is one of a version's batch."""
        if version.origin != "batch":
            return False
        source = await partition_of(self._target, topics.BATCHES, self._name)
        records = await self._target.read_at(source, [version.manifest_offset])
        manifests = topics.BATCHES.under(self._name, records.values())
        return any(member.reflection_id == reflection_id for batch in manifests for member in batch.members)

    async def _publish(self, batch: Sequence[Arrival], published: dict[str, int]) -> int:
        missing = {
            arrival.offset: arrival.reflection_id
            for arrival in batch
            if arrival.reflection_id not in published
        }
        published |= await self._shadow.copy(missing, f"batch {batch[0].sequence}")
        return max(published[arrival.reflection_id] for arrival in batch)

    async def read(self, done: RunResult) -> RunResult:
        """Return ``done`` with the shadow's versions added."""
        places = {
            arrival.reflection_id: place for place, batch in enumerate(done.batches) for arrival in batch
        }
        place_of: dict[int, int] = {}
        async for manifest in messages(self._target, topics.BATCHES, self._name):
            if manifest.members:
                place_of.setdefault(manifest.plan.sequence, places[manifest.members[-1].reflection_id])
        async for version in History(self._target).between(self._name, 0):
            if version.origin == "batch" and version.batch:
                done.versions.append(version.model_copy(update={"entries": (), "changes": ()}))
                took = (version.created_at_ms - version.batch.plan.closed_at_ms) / 1000
                place = place_of.get(version.batch_sequence, -1)
                done.seconds[place] = done.seconds.get(place, 0.0) + max(0.0, took)
            done.newest = version
        return done
