"""What the shuffler knows of entries whose embeddings are near each other."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from combee.adapters.ports import Embedded
from combee.process.worker.vectors import Vectors
from combee.shuffle.neighbours import NOTHING, Alike, Neighbours
from combee_schemas.playbook import ACE_SECTIONS, Entry
from combee_sim.embeddings import SimulatedEmbedder
from combee_sim.family.family import lessons
from combee_sim.family.wordings import all_wordings

ONE, OTHER = all_wordings(lessons()[0])[:2]
FAR = lessons()[1]


def entries(*contents: str) -> list[Entry]:
    return [Entry(id=f"e-{n}", section=ACE_SECTIONS[0], content=text) for n, text in enumerate(contents, 1)]


@asynccontextmanager
async def working(embedder: SimulatedEmbedder) -> AsyncIterator[Neighbours]:
    subject = Neighbours(Vectors(embedder, "m"))
    task = asyncio.create_task(subject.run())
    try:
        yield subject
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def found(subject: Neighbours, book: Sequence[Entry]) -> Alike:
    ready = asyncio.Event()
    subject.on_compared = ready.set
    assert subject.of("p", book) is None
    async with asyncio.timeout(5):
        await ready.wait()
    answer = subject.of("p", book)
    assert answer is not None
    return answer


async def test_wordings_of_one_lesson_are_neighbours_and_what_it_cost_is_told() -> None:
    async with working(SimulatedEmbedder()) as subject:
        answer = await found(subject, entries(ONE, FAR, OTHER))
    assert list(answer.pairs) == [("e-1", "e-3")]
    assert (answer.embeddings, answer.usage.calls) == ("m", 1)


async def test_what_changed_while_it_was_asked_for_has_no_neighbours() -> None:
    async with working(SimulatedEmbedder()) as subject:
        ready = asyncio.Event()
        subject.on_compared = ready.set
        subject.of("p", entries(ONE, OTHER))
        await ready.wait()
        answer = subject.of("p", entries(FAR, OTHER, ONE))
    assert answer is not None
    assert answer.pairs == {}


async def test_without_a_model_or_a_pair_the_answer_is_there_at_once() -> None:
    assert Neighbours().of("p", entries(ONE, OTHER)) is NOTHING
    assert Neighbours(Vectors(SimulatedEmbedder(), "m")).of("p", entries(ONE)) is NOTHING


async def test_two_playbooks_do_not_share_an_answer() -> None:
    class Counting(SimulatedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Embedded:
            await asyncio.sleep(0)
            return await super().embed(texts)

    async with working(Counting()) as subject:
        done = asyncio.Queue[None]()
        subject.on_compared = lambda: done.put_nowait(None)
        assert subject.of("p", entries(ONE, OTHER)) is None
        assert subject.of("q", entries(ONE, FAR)) is None
        for _ in range(2):
            await done.get()
        first, second = subject.of("p", entries(ONE, OTHER)), subject.of("q", entries(ONE, FAR))
    assert first is not None
    assert second is not None
    assert (len(first.pairs), len(second.pairs)) == (1, 0)
