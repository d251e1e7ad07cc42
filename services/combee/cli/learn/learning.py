"""What ``combee learn`` does once a log is open: publish, wait until all is applied, report."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from combee.cli.sending import commands_on
from combee.core.formats.intake import Item, LineError, Sample, Unknown, read_line, verdict
from combee.core.identity import earlier_reflection_id, fingerprint, reflection_id
from combee.core.methods import ace
from combee.core.methods.method import Method
from combee.core.playbook.apply import empty
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import left_nothing
from combee.history import messages, partition_of
from combee.inspection.tracker import Tracker
from combee.ports import Clock, LanguageModel, Log, Outgoing, PoisonError
from combee_schemas import topics
from combee_schemas.base import Message, Shown, Usage
from combee_schemas.codec import CodecError, encode
from combee_schemas.model import Reply
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Update
from combee_schemas.topics import Topic
from combee_schemas.trace import Trace

CHUNK = 200
M = TypeVar("M", Playbook, Update)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: of ``total`` new items, how many are reflections, in batches, applied."""

    total: int
    reflected: int
    batched: int
    applied: int
    dead: int = 0

    @property
    def left(self) -> dict[str, int]:
        """How many are still to pass each stage."""
        passed = {"reflected": self.reflected, "batched": self.batched, "applied": self.applied}
        return {stage: max(0, self.total - self.dead - count) for stage, count in passed.items()}


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run did; ``as_json`` is the documented shape."""

    playbook: Playbook
    published: int = 0
    applied: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    rejected: int = 0
    conflicts: tuple[str, ...] = ()
    """Ids of lines that nothing was learned from: the playbook has other content under them."""
    batches: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    left_nothing: dict[str, list[str]] = field(default_factory=dict)
    """Why → the reflections (by the ids of their traces, where they have one) that the playbook shows no trace of."""

    def as_json(self) -> dict[str, object]:
        """Return the stable shape of ``learn --json``."""
        return {
            "playbook": self.playbook.name,
            "version": self.playbook.version,
            "entries": len(self.playbook.entries),
            "reflections": {
                "published": self.published,
                "applied": self.applied,
                "duplicates": self.duplicates,
                "dead_lettered": self.dead_lettered,
                "rejected": self.rejected,
            },
            "conflicts": list(self.conflicts),
            "batches": self.batches,
            "model_calls": self.usage.calls,
            "tokens": {"in": self.usage.tokens_in, "out": self.usage.tokens_out},
            "seconds": round(self.seconds, 3),
            "left_nothing": self.left_nothing,
        }


def read_items(
    lines: Iterable[str],
    playbook: str,
    on_bad_line: Callable[[int, str], None],
    ignored: dict[str, Unknown] | None = None,
) -> tuple[list[Item], int]:
    """Return the usable items and how many lines were rejected; bad lines are reported and passed over."""
    items: list[Item] = []
    rejected = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = read_line(line, playbook, ignored)
            if isinstance(item, Message):
                encode(item)
            items.append(item)
        except (LineError, CodecError) as error:
            rejected += 1
            on_bad_line(number, str(error))
    return items, rejected


def learned_id(item: Item) -> str:
    """Return the id of the reflection that an item is or becomes."""
    return item.reflection_id if isinstance(item, Reflection) else reflection_id(item.playbook, item.trace_id)


def earlier_ids(items: Iterable[Item]) -> dict[str, str]:
    """Return what a file that was learned before ids were scoped by playbook is known by: see Tracker."""
    return {
        earlier_reflection_id(item.trace_id): learned_id(item)
        for item in items
        if not isinstance(item, Reflection)
    }


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
    ) -> None:
        self._log = log
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
        """Publish what is new and wait until every item is applied or dead-lettered.

        Raises
        ------
        StalledError
            If nothing moves for ``stall_s``; everything published is safe, and the same run continues it.
        PausedError
            If a spend cap is why.
        """
        began = self._clock.monotonic()
        tracker = Tracker(self._log, playbook, self._clock, self._spending, earlier=earlier_ids(items))
        async with tracker.running():
            new = new_items(items, tracker)
            base, since = tracker.newest or empty(playbook), await _ends(self._log)
            await self._publish([new[one] for one in new if not tracker.is_reflected(one)], tracker)
            await self.settle(tracker, new, stall_s=stall_s, on_progress=on_progress)
            report = self.report(tracker, new)
            report.left_nothing = await _left_nothing(self._log, base, since, new)
            conflicts = await conflicting(items, tracker)
        report.conflicts = tuple(_own_id(one) for one in conflicts)
        report.applied -= sum(new.get(learned_id(one)) is one for one in conflicts)
        report.duplicates = len(items) - len(new)
        report.seconds = self._clock.monotonic() - began
        return report

    async def known(self, items: Sequence[Item], playbook: str) -> Report | None:
        """Return the report of a run with nothing to do, or None if something is new."""
        tracker = Tracker(self._log, playbook, self._clock, earlier=earlier_ids(items))
        async with tracker.running():
            if new_items(items, tracker):
                return None
            conflicts = await conflicting(items, tracker)
            return Report(
                playbook=tracker.newest or empty(playbook),
                duplicates=len(items),
                conflicts=tuple(map(_own_id, conflicts)),
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
            on_progress(_progress(tracker, new))

        await tracker.wait(lambda: _all_reflected(tracker, new), stall_s=stall_s, on_change=show)
        unbatched = [one for one in tracker.unsettled(new) if one not in tracker.batch_of]
        if unbatched:
            await self._flush(tracker.name, max(offset for offset, _ in tracker.reflections.values()))
        await tracker.wait(
            lambda: not tracker.unsettled(new), stall_s=stall_s, on_change=show, heed_pause=True
        )

    async def _publish(self, items: Sequence[Item], tracker: Tracker) -> None:
        ready = [item for item in items if not isinstance(item, Sample)]
        for start in range(0, len(ready), CHUNK):
            await self._log.produce(*map(outgoing, ready[start : start + CHUNK]))
        async with asyncio.TaskGroup() as group:
            for sample in (item for item in items if isinstance(item, Sample)):
                await self._slots.acquire()
                task = group.create_task(self._answer(sample, tracker.newest or empty(sample.playbook)))
                task.add_done_callback(lambda _: self._slots.release())

    async def _answer(self, sample: Sample, playbook: Playbook) -> None:
        """Let an agent answer a sample with the newest playbook, and publish its trace."""
        if self._model is None:
            raise PoisonError("samples need a model to answer them")
        try:
            reply = await self._model.ask(self._method.answer_prompt(playbook, sample.question))
        except PoisonError as error:
            reply = Reply(body={}, usage=error.usage)  # a run without an answer is a wrong run
        self._own += reply.usage
        answer = str(reply.body.get("final_answer", ""))
        trace = Trace(
            trace_id=sample.trace_id,
            playbook=sample.playbook,
            task=sample.question,
            trajectory=str(reply.body.get("reasoning", "")),
            answer=answer,
            target=sample.target,
            feedback=verdict(answer, sample.target),
            shown=Shown(version=playbook.version, entry_ids=tuple(entry.id for entry in playbook.entries)),
            created_at_ms=self._clock.now_ms(),
        )
        await self._log.produce(outgoing(trace))

    async def _flush(self, playbook: str, through: int) -> None:
        commands = commands_on(self._log, self._clock)
        decision = await commands.flush(playbook, through)
        if decision.command is not None:
            await commands.send(decision.command)

    def report(self, tracker: Tracker, new: Mapping[str, Item]) -> Report:
        """Return what became of ``new``, once it is settled."""
        dead = [one for one in new if one in tracker.dead]
        derived = [one for one in new if not isinstance(new[one], Reflection)]
        sequences = {tracker.batch_of[one] for one in new if one in tracker.batch_of}
        reflecting = [tracker.reflections[one][1].usage for one in derived if one in tracker.reflections]
        scanning = [tracker.versions[sequence].usage for sequence in sequences]
        return Report(
            playbook=tracker.newest or empty(tracker.name),
            published=len(new),
            applied=len(new) - len(dead),
            dead_lettered=len(dead),
            batches=len(sequences),
            usage=sum([*reflecting, *scanning], self._own),
        )


def new_items(items: Sequence[Item], tracker: Tracker) -> dict[str, Item]:
    """Return the items that no version contains yet, by the id of their reflection, each once."""
    new: dict[str, Item] = {}
    for item in items:
        if not tracker.is_applied(learned_id(item)):
            new.setdefault(learned_id(item), item)
    return new


async def conflicting(items: Sequence[Item], tracker: Tracker) -> list[Trace | Reflection]:
    """Return the items whose id means other content to the playbook: nothing is learned from them."""
    # What an agent answers to a sample differs from run to run, the sample does not.
    comparable = [item for item in items if not isinstance(item, Sample)]
    counted: dict[str, str] = {}
    for item in comparable:
        counted.setdefault(learned_id(item), fingerprint(item))
    counted |= {one: known for one, known in (await tracker.counted(counted)).items() if known}
    return [item for item in comparable if fingerprint(item) != counted[learned_id(item)]]


def _own_id(item: Item) -> str:
    return item.reflection_id if isinstance(item, Reflection) else item.trace_id


def outgoing(item: Item) -> Outgoing:
    """Return the record of a trace or a reflection."""
    if isinstance(item, Reflection):
        return topics.REFLECTIONS.record(item)
    if isinstance(item, Trace):
        return topics.TRACES.record(item)
    raise TypeError("a sample has to be answered first")


def _all_reflected(tracker: Tracker, new: Iterable[str]) -> bool:
    return all(tracker.is_reflected(one) or one in tracker.dead for one in new)


def _progress(tracker: Tracker, new: Mapping[str, Item]) -> Progress:
    return Progress(
        dead=sum(one in tracker.dead for one in new),
        total=len(new),
        reflected=sum(tracker.is_reflected(one) for one in new),
        batched=sum(one in tracker.batch_of for one in new),
        applied=sum(tracker.is_applied(one) for one in new),
    )


async def _ends(log: Log) -> dict[str, Mapping[int, int]]:
    return {topic.name: dict(await log.ends(topic.name)) for topic in (topics.UPDATES, topics.HISTORY)}


async def _left_nothing(
    log: Log, base: Playbook, since: Mapping[str, Mapping[int, int]], new: Mapping[str, Item]
) -> dict[str, list[str]]:
    """Return which of ``new`` left nothing in the versions made since, by reason."""
    updates: dict[int, Update] = {}
    for update in await _read(log, topics.UPDATES, base.name, since):
        updates.setdefault(update.plan.sequence, update)
    before, found = base, defaultdict[str, list[str]](list)
    for after in await _read(log, topics.HISTORY, base.name, since):
        made_by = updates.get(after.batch_sequence) if after.origin == "batch" else None
        for one, why in (left_nothing(before, made_by, after) if made_by else {}).items():
            if one in new:
                found[why].append(_own_id(new[one]))
        before = after
    return dict(found)


async def _read(log: Log, topic: Topic[M], name: str, since: Mapping[str, Mapping[int, int]]) -> list[M]:
    start = since[topic.name][(await partition_of(log, topic, name)).partition]
    return [message async for message in messages(log, topic, name, start)]
