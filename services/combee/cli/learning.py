"""What ``combee learn`` does once a log is open: publish, wait until all is applied, report."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from combee.cli.sending import issuer
from combee.core.identity import reflection_id
from combee.core.intake import Item, LineError, Sample, read_line, verdict
from combee.core.method import Method
from combee.core.methods import ace
from combee.core.playbook import empty
from combee.core.spend import UNCAPPED, SpendPolicy
from combee.ports import Clock, LanguageModel, Log, Outgoing, PoisonError
from combee.runtime.tracker import Tracker
from combee_schemas import topics
from combee_schemas.base import Message, Shown, Usage
from combee_schemas.codec import CodecError, encode
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

CHUNK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: of ``total`` new items, how many are reflections, in batches, applied."""

    total: int
    reflected: int
    batched: int
    applied: int


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run did; ``as_json`` is the documented shape."""

    playbook: Playbook
    published: int = 0
    applied: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    rejected: int = 0
    batches: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

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
            "batches": self.batches,
            "model_calls": self.usage.calls,
            "tokens": {"in": self.usage.tokens_in, "out": self.usage.tokens_out},
            "seconds": round(self.seconds, 3),
        }


def read_items(
    lines: Iterable[str], playbook: str, on_bad_line: Callable[[int, str], None]
) -> tuple[list[Item], int]:
    """Return the usable items and how many lines were rejected; bad lines are reported and passed over."""
    items: list[Item] = []
    rejected = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = read_line(line, playbook)
            if isinstance(item, Message):
                encode(item)
            items.append(item)
        except (LineError, CodecError) as error:
            rejected += 1
            on_bad_line(number, str(error))
    return items, rejected


def learned_id(item: Item) -> str:
    """Return the id of the reflection that an item is or becomes."""
    return item.reflection_id if isinstance(item, Reflection) else reflection_id(item.trace_id)


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
        async with Tracker(self._log, playbook, self._clock, self._spending).running() as tracker:
            new = new_items(items, tracker)
            await self._publish(list(new.values()), tracker)
            await self.settle(tracker, new, stall_s=stall_s, on_progress=on_progress)
            report = self.report(tracker, new)
        report.duplicates = len(items) - len(new)
        report.seconds = self._clock.monotonic() - began
        return report

    async def known(self, items: Sequence[Item], playbook: str) -> Report | None:
        """Return the report of a run with nothing to do, or None if something is new."""
        async with Tracker(self._log, playbook, self._clock).running() as tracker:
            if new_items(items, tracker):
                return None
            return Report(playbook=tracker.newest or empty(playbook), duplicates=len(items))

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

        trace_of = _traces(new)
        await tracker.wait(lambda: _all_reflected(tracker, new, trace_of), stall_s=stall_s, on_change=show)
        waiting = [one for one in new if trace_of.get(one) not in tracker.dead]
        unbatched = [one for one in tracker.unsettled(waiting) if one not in tracker.batch_of]
        if unbatched:
            await self._flush(tracker.name, max(offset for offset, _ in tracker.reflections.values()))
        await tracker.wait(
            lambda: not tracker.unsettled(waiting), stall_s=stall_s, on_change=show, heed_pause=True
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
        reply = await self._model.ask(self._method.answer_prompt(playbook, sample.question))
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
        command = Command(
            command_id=f"flush-{uuid4().hex}",
            playbook=playbook,
            kind="flush",
            through_offset=through,
            issued_at_ms=self._clock.now_ms(),
            issued_by=issuer(),
        )
        await self._log.produce(
            Outgoing(topic=topics.COMMANDS.name, key=playbook.encode(), value=encode(command))
        )

    def report(self, tracker: Tracker, new: Mapping[str, Item]) -> Report:
        """Return what became of ``new``, once it is settled."""
        trace_of = _traces(new)
        dead = [one for one in new if one in tracker.dead or trace_of.get(one) in tracker.dead]
        sequences = {tracker.batch_of[one] for one in new if one in tracker.batch_of}
        reflecting = [tracker.reflections[one][1].usage for one in trace_of if one in tracker.reflections]
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


def _traces(new: Mapping[str, Item]) -> dict[str, str]:
    return {one: item.trace_id for one, item in new.items() if not isinstance(item, Reflection)}


def outgoing(item: Item) -> Outgoing:
    """Return the record of a trace or a reflection."""
    if isinstance(item, Reflection):
        return Outgoing(topic=topics.REFLECTIONS.name, key=item.playbook.encode(), value=encode(item))
    if isinstance(item, Trace):
        return Outgoing(topic=topics.TRACES.name, key=item.trace_id.encode(), value=encode(item))
    raise TypeError("a sample has to be answered first")


def _all_reflected(tracker: Tracker, new: Mapping[str, Item], trace_of: Mapping[str, str]) -> bool:
    return all(
        one in tracker.reflections or one in tracker.batch_of or trace_of.get(one) in tracker.dead
        for one in new
    )


def _progress(tracker: Tracker, new: Mapping[str, Item]) -> Progress:
    return Progress(
        total=len(new),
        reflected=sum(one in tracker.reflections or one in tracker.batch_of for one in new),
        batched=sum(one in tracker.batch_of for one in new),
        applied=sum(tracker.is_applied(one) for one in new),
    )
