"""Learning without a log: batches cut, scanned and applied one after the other by the product's own code."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from combee.adapters.ports import LanguageModel
from combee.core.batching.plan import Base
from combee.core.formats.render import ace_text
from combee.core.playbook import versions
from combee.core.playbook.retention import total
from combee.core.playbook.shown import needless_bytes
from combee.core.playbook.versions import empty
from combee.core.text.prompt import estimate_tokens
from combee.process.settings.playbook import PlaybookSettings
from combee.scan.head_start import HeadStart
from combee_experiments.arms.arms import Arm
from combee_experiments.arms.scanning import BY_WORDS, Comparing, Scan
from combee_experiments.data.samples import PLAYBOOK
from combee_experiments.running.cells import Numbers
from combee_schemas.base import Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import NodeResult, Update
from combee_sim.law.samples import entries_stated

BUDGET_TOKENS = int(PlaybookSettings.model_fields["playbook_tokens"].default)

Reflecting = Callable[[Playbook, int, int], Awaitable[Sequence[Reflection]]]
"""A frozen playbook and a range of samples → what agents learned from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """A finished run."""

    playbook: Playbook
    versions: tuple[Playbook, ...]
    updates: tuple[Update, ...]
    roots: tuple[NodeResult, ...]
    """The updates' results before they were checked."""
    proposed: int
    """The entries of all updates as the paper counts them, before they meet what the playbook says already."""
    seconds: float
    """On the loop's clock: virtual on the stand-in."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The last version's entries."""
        return tuple(entry.content for entry in self.playbook.entries)

    @property
    def usage(self) -> Usage:
        """What the updates took."""
        return sum((version.usage for version in self.versions), Usage())

    def numbers(self) -> dict[str, float]:
        """Return what there is to say of every run."""
        usage, tokens = self.usage, estimate_tokens(ace_text(self.playbook))
        return {
            "seconds": self.seconds,
            "updates": len(self.versions),
            "calls": usage.calls,
            "tokens_in": usage.tokens_in,
            "cached_tokens": usage.cached_tokens,
            "tokens_out": usage.tokens_out,
            "proposed": self.proposed,
            "entries": len(self.playbook.entries),
            "playbook_tokens": tokens,
            **self._retention(),
        }

    def _retention(self) -> Numbers:
        """Return the audit's shares over all reflections."""
        audit = total(version.audit for version in self.versions if version.audit)
        count = sum(version.reflections for version in self.versions)
        counts = {name: getattr(audit, name) for name in ("said", "verified", "carried", "kept")}
        return {name: number / count for name, number in counts.items()}


async def learn(
    model: LanguageModel,
    reflections: Sequence[Reflection],
    arm: Arm,
    batch_size: int,
    *,
    budget_tokens: int = BUDGET_TOKENS,
    comparing: Comparing = BY_WORDS,
) -> Learnt:
    """Learn from reflections that are there already: update calls alone take time."""

    async def ready(_: Playbook, start: int, end: int) -> Sequence[Reflection]:
        return reflections[start:end]

    return await iterate(
        model, ready, len(reflections), arm, batch_size, budget_tokens=budget_tokens, comparing=comparing
    )


async def iterate(
    model: LanguageModel,
    reflecting: Reflecting,
    count: int,
    arm: Arm,
    batch_size: int,
    *,
    budget_tokens: int = BUDGET_TOKENS,
    begin: Playbook | None = None,
    comparing: Comparing = BY_WORDS,
    head_start: HeadStart | None = None,
) -> Learnt:
    """Run the paper's iterations: agents on a frozen playbook, one tree, one version; until ``count`` are done.

    ``begin``: the playbook before the first; None: an empty one.
    """
    clock = asyncio.get_running_loop()
    book, made, updates, started = begin or empty(PLAYBOOK), list[Playbook](), list[Update](), clock.time()
    roots, proposed = list[NodeResult](), 0
    for start in range(0, count, batch_size):
        batch = await reflecting(book, start, min(start + batch_size, count))
        if not batch:
            continue
        scan = Scan(model, arm, book, _planned(arm, book, batch, start), batch, comparing, head_start)
        update = await scan.update()
        updates.append(update)
        roots.append(scan.root)
        proposed += entries_stated(update.result.operations, scan.known)
        book = versions.after_update(book, update, budget_tokens=budget_tokens, now_ms=0)
        made.append(book)
    seconds = clock.time() - started
    return Learnt(
        playbook=book,
        versions=tuple(made),
        updates=tuple(updates),
        roots=tuple(roots),
        proposed=proposed,
        seconds=seconds,
    )


def _planned(arm: Arm, book: Playbook, batch: Sequence[Reflection], start: int) -> Batch:
    members = [Member(offset=start + n, reflection_id=one.reflection_id) for n, one in enumerate(batch)]
    base = Base(version=book.version, sequence=book.batch_sequence)
    sizes = [len(encode(one)) - needless_bytes(one, one.playbook) for one in batch]
    return arm.plan(book.name, book.batch_sequence + 1, members, sizes, base)
