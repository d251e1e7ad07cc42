"""One run of ``combee learn`` on an open log: publish, wait until all items are applied, report."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from combee.adapters.ports import Clock, LanguageModel, Log, PoisonError
from combee.cli.shared.sending import commands_on
from combee.core.formats.intake import Item, Sample, verdict
from combee.core.formats.items import learned_id, own_id, unproven_ids, unvouched_ids
from combee.core.gate.gate import label_read
from combee.core.methods import ace
from combee.core.methods.method import Method
from combee.core.names.sources import Signer, declared
from combee.core.playbook.shown import shown, shown_to
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import empty
from combee.log.history import History, labels_of
from combee.log.inspection.learned import (
    Progress,
    Report,
    all_reflected,
    conflicting,
    effects,
    ends_before,
    new_items,
    progress_of,
)
from combee.log.inspection.tracker import Tracker
from combee_schemas.base import Usage
from combee_schemas.model import Reply
from combee_schemas.playbook import LATEST, NO_LABEL, PRODUCTION, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

CHUNK = 200


class Learning:
    """One run over one list of items."""

    def __init__(
        self,
        log: Log,
        model: LanguageModel | None,
        clock: Clock,
        *,
        concurrency: int,
        spending: SpendPolicy = UNCAPPED,
        method: Method = ace,
        signer: Signer | None = None,
    ) -> None:
        self._log = log
        self._history = History(log)
        self._signer = signer
        self._method = method
        self._model = model
        self._clock = clock
        self._spending = spending
        self._slots = asyncio.Semaphore(concurrency)
        self._own = Usage()

    async def run(
        self,
        items: Sequence[Item],
        playbook: str,
        *,
        stall_s: float,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> Report:
        """Publish new items and wait until every item is applied or dead-lettered.

        Raises
        ------
        StalledError
            If there is no progress for ``stall_s``; everything published is safe, and the same run resumes it.
        PausedError
            If a spend cap, or a person's order, is the reason.
        """
        began = self._clock.monotonic()
        tracker = self._tracker(items, playbook)
        async with tracker.running():
            new = new_items(items, tracker, self._signer)
            base, since = tracker.newest or empty(playbook), await ends_before(self._log)
            await self._publish(
                [new[reflection_id] for reflection_id in new if not tracker.is_reflected(reflection_id)],
                tracker,
            )
            await self.settle(tracker, new, stall_s=stall_s, on_progress=on_progress)
            report = self.report(tracker, new)
            report.audit, report.left_nothing = await effects(self._log, base, since, new, tracker.known_as)
            conflicts = await conflicting(items, tracker, self._signer)
        report.conflicts = tuple(own_id(conflict) for conflict in conflicts)
        report.applied -= sum(
            new.get(learned_id(conflict, self._signer)) is conflict for conflict in conflicts
        )
        report.duplicates = len(items) - len(new)
        report.seconds = self._clock.monotonic() - began
        return report

    def _tracker(self, items: Sequence[Item], playbook: str) -> Tracker:
        return Tracker(
            self._log,
            playbook,
            self._clock,
            self._spending,
            unvouched=unvouched_ids(items, self._signer),
            unproven=unproven_ids(items, self._signer),
        )

    async def known(self, items: Sequence[Item], playbook: str) -> Report | None:
        """Return the report of a run with nothing to do, or None if something is new."""
        tracker = self._tracker(items, playbook)
        async with tracker.running():
            if new_items(items, tracker, self._signer):
                return None
            conflicts = await conflicting(items, tracker, self._signer)
            return Report(
                playbook=tracker.newest or empty(playbook),
                duplicates=len(items),
                conflicts=tuple(map(own_id, conflicts)),
            )

    async def settle(
        self,
        tracker: Tracker,
        new: Mapping[str, Item],
        *,
        stall_s: float,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Wait until all of ``new``, already published, is applied or dead-lettered; flush the last window."""

        def show() -> None:
            on_progress(progress_of(tracker, new))

        await tracker.wait(lambda: all_reflected(tracker, new), stall_s=stall_s, on_change=show)
        unbatched = [
            reflection_id for reflection_id in tracker.unsettled(new) if reflection_id not in tracker.batch_of
        ]
        if unbatched:
            await self._flush(tracker.name, max(offset for offset, _ in tracker.reflections.values()))
        await tracker.wait(
            lambda: not tracker.unsettled(new), stall_s=stall_s, on_change=show, heeds_cap=True
        )

    async def _publish(self, items: Sequence[Item], tracker: Tracker) -> None:
        ready = [item for item in items if not isinstance(item, Sample)]
        for start in range(0, len(ready), CHUNK):
            await self._log.produce(*(declared(item, self._signer) for item in ready[start : start + CHUNK]))
        async with asyncio.TaskGroup() as group:
            for sample in (item for item in items if isinstance(item, Sample)):
                await self._slots.acquire()
                task = group.create_task(self._answer(sample, tracker.newest or empty(sample.playbook)))
                task.add_done_callback(lambda _: self._slots.release())

    async def _read_by_agents(self, newest: Playbook) -> Playbook:
        """Return the version that agents read; without one, the empty version."""
        production = (await labels_of(self._log, newest.name)).get(PRODUCTION)
        if label_read(NO_LABEL, production, newest) == LATEST:
            return newest
        number = production.version if production else 0
        return await self._history.exactly(newest.name, number, newest) or empty(newest.name)

    async def _answer(self, sample: Sample, newest: Playbook) -> None:
        """Answer a sample with the version that agents read, and publish the trace."""
        if self._model is None:
            raise PoisonError("samples need a model to answer them")
        playbook = await self._read_by_agents(newest)
        try:
            reply = await self._model.ask(self._method.answer_prompt(playbook, sample.question))
        except PoisonError as error:
            reply = Reply(body={}, usage=error.usage)  # a run without an answer counts as wrong
        self._own += reply.usage
        answer = str(reply.body.get("final_answer", ""))
        trace = Trace(
            trace_id=sample.trace_id,
            playbook=sample.playbook,
            task=sample.question,
            trajectory=str(reply.body.get("reasoning", "")),
            answer=answer,
            target=sample.target,
            feedback=verdict(answer, sample.target, sample.kind),
            shown=shown_to(playbook, shown(playbook).entries),
            created_at_ms=self._clock.now_ms(),
        )
        await self._log.produce(declared(trace, self._signer))

    async def _flush(self, playbook: str, through: int) -> None:
        commands = commands_on(self._log, self._clock)
        decision = await commands.flush(playbook, through)
        if decision.command is not None:
            await commands.send(decision.command)

    def report(self, tracker: Tracker, new: Mapping[str, Item]) -> Report:
        """Return the report on ``new`` after all its items are settled."""
        dead = [reflection_id for reflection_id in new if tracker.fate(reflection_id).is_dead]
        derived = [reflection_id for reflection_id in new if not isinstance(new[reflection_id], Reflection)]
        sequences = {
            tracker.batch_of[reflection_id] for reflection_id in new if reflection_id in tracker.batch_of
        }
        reflecting = [
            tracker.reflections[reflection_id][1].usage
            for reflection_id in derived
            if reflection_id in tracker.reflections
        ]
        scanning = [tracker.versions[sequence].usage for sequence in sequences]
        return Report(
            playbook=tracker.newest or empty(tracker.name),
            published=len(new),
            applied=len(new) - len(dead),
            dead_lettered=len(dead),
            batches=len(sequences),
            usage=sum([*reflecting, *scanning], self._own),
        )
