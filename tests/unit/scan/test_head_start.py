"""The head start of a batch's first group, in virtual time: the others wait for as long as reading may take."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from combee.core.methods import ace
from combee.core.methods.method import Method
from combee.core.playbook.versions import empty
from combee.core.text.prompt import estimate_tokens
from combee.scan.aggregate import Aggregator
from combee.scan.head_start import CACHED_S, MAX_S, MIN_TOKENS, READ_PER_S, HeadStart, wait_s
from combee_experiments.running.virtual_time import LoopClock, run_virtual
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import GroupMember
from support.scanned import reflections

CALL_S = 10.0
ENTRIES = tuple(
    Entry(id=f"misc-{n:05d}", section="OTHERS", content=f"Rule {n}: " + "count the parcels " * 10)
    for n in range(400)
)
BOOK: Playbook = empty("p").model_copy(update={"version": 3, "entries": ENTRIES})


class Timed:
    """A model whose calls take ten seconds; it notes when each began."""

    def __init__(self) -> None:
        self.began_s: list[float] = []
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        del priority
        self.began_s.append(LoopClock().monotonic())
        self.prompts.append(prompt)
        await asyncio.sleep(CALL_S)
        return Reply(body={"operations": []}, usage=Usage(calls=1))

    def drain(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing is open."""


class Level:
    """The groups of batches, asked at once by one worker."""

    def __init__(self) -> None:
        self.model = Timed()
        self.head_start = HeadStart(LoopClock())
        self.aggregator = Aggregator(self.model, cast("Method", ace), head_start=self.head_start)

    async def waits(self, book: Playbook = BOOK, groups: Sequence[int] = range(3)) -> list[float]:
        """Return the seconds after which each group's call began."""
        began, known = LoopClock().monotonic(), len(self.model.began_s)
        (one,) = reflections("Count the parcels twice.")
        member = GroupMember(offset=0, reflection=one)
        await asyncio.gather(*(self.aggregator.group(book, [member], index) for index in groups))
        return [at - began for at in self.model.began_s[known:]]


def read_s(prompt: Prompt, unread_tokens: int | None = None) -> float:
    unread = estimate_tokens(prompt.system) if unread_tokens is None else unread_tokens
    return wait_s(unread, estimate_tokens(prompt.user))


def with_more(book: Playbook, content: str) -> Playbook:
    entry = Entry(id="misc-09999", section="OTHERS", content=content, created_version=book.version + 1)
    return book.model_copy(update={"version": book.version + 1, "entries": (*book.entries, entry)})


def test_the_first_group_is_asked_at_once_and_the_others_once_it_may_have_been_read() -> None:
    async def work() -> None:
        level = Level()
        first, *others = await level.waits()
        assert first == 0
        expected = read_s(level.model.prompts[0])
        assert others == pytest.approx([expected, expected])
        assert expected > estimate_tokens(level.model.prompts[0].system) / READ_PER_S

    run_virtual(work())


def test_what_this_worker_has_had_read_lately_is_not_waited_for() -> None:
    async def work() -> None:
        level = Level()
        await level.waits()
        assert await level.waits() == [0, 0, 0]
        await asyncio.sleep(CACHED_S + 1)
        assert (await level.waits())[1] == pytest.approx(read_s(level.model.prompts[0]))

    run_virtual(work())


def test_of_the_next_version_what_is_new_is_waited_for() -> None:
    async def work() -> None:
        level = Level()
        await level.waits()
        assert await level.waits(with_more(BOOK, "One more rule.")) == [0, 0, 0]
        longer = with_more(BOOK, "Weigh the parcels again. " * 400)
        _, wait, _ = await level.waits(longer)
        assert 0 < wait < read_s(level.model.prompts[-1]) / 2
        changed = ENTRIES[0].model_copy(update={"content": "Rule 0 is gone."})
        _, wait, _ = await level.waits(BOOK.model_copy(update={"entries": (changed, *ENTRIES[1:])}))
        assert wait > 0.9 * read_s(level.model.prompts[-1])

    run_virtual(work())


@pytest.mark.parametrize(
    "book", [empty("p"), BOOK.model_copy(update={"entries": ENTRIES[:3]})], ids=["empty", "small"]
)
def test_little_is_not_worth_a_wait(book: Playbook) -> None:
    assert wait_s(MIN_TOKENS - 1, 100_000) == 0 < wait_s(MIN_TOKENS, 0)
    level_s: list[float] = []

    async def work() -> None:
        level_s.extend(await Level().waits(book))

    run_virtual(work())
    assert max(level_s) < 0.5


def test_a_wait_is_bounded_however_long_the_playbook_is() -> None:
    assert wait_s(10**9, 0) == MAX_S


def test_a_worker_that_stops_does_not_wait() -> None:
    async def work() -> None:
        level = Level()
        task = asyncio.create_task(level.waits(groups=[1]))
        await asyncio.sleep(0.1)
        assert level.model.began_s == []
        level.head_start.drain()
        assert await task == pytest.approx([0.1])

    run_virtual(work())
