"""One run on a stand-in that fails in a chosen way: what the playbook keeps, says of itself, and costs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from combee.adapters.ports import Embedded, LanguageModel, PoisonError
from combee.core.playbook.results.coverage import lesson_of
from combee.core.playbook.versions import empty
from combee.core.text.similarity.embeddings import Thresholds, cosine_of
from combee.core.text.similarity.measuring import proposed
from combee.log.evaluation.labelled_pairs import labelled_pairs
from combee.process.worker.vectors import Vectors
from combee_experiments.arms.arms import Arm
from combee_experiments.arms.learning import Learnt, learn
from combee_experiments.arms.material import exam, reflections
from combee_experiments.arms.scanning import BY_WORDS, Comparing
from combee_experiments.coverage.report import NOTHING_LOST
from combee_experiments.data.samples import PLAYBOOK, Data
from combee_experiments.running.cells import Numbers
from combee_experiments.running.setup import Setup
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import NodeResult, Update
from combee_sim.embeddings import SimulatedEmbedder, vector
from combee_sim.family.lessons import key
from combee_sim.inprocess import SimulatedModel
from combee_sim.law.law import Law
from combee_sim.law.rules import IN_FORCE, parse_law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.prefix_cache import PrefixCache

CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How the stand-in fails, and by what texts are compared."""

    batch_size: int
    law: str = IN_FORCE
    modes: Modes = NO_MODES
    checks: bool = True
    """Whether the check call is answered."""
    embeds: bool = False
    """Whether texts are compared by the stand-in's embeddings, too."""


class Tallied:
    """A model that counts what check calls take; ``mute``: they are not answered."""

    def __init__(self, inner: LanguageModel, *, mute: bool) -> None:
        self._inner = inner
        self._mute = mute
        self.checks = Usage()

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the model's reply."""
        if prompt.reply_name != CHECK:
            return await self._inner.ask(prompt, priority=priority)
        if self._mute:
            raise PoisonError("check calls are not answered")
        reply = await self._inner.ask(prompt, priority=priority)
        self.checks += reply.usage
        return reply

    def drain(self) -> None:
        self._inner.drain()

    async def close(self) -> None:
        await self._inner.close()


class CountedEmbedder(SimulatedEmbedder):
    """The stand-in's embeddings, and what they took."""

    def __init__(self) -> None:
        super().__init__()
        self.usage = Usage()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the stand-in's vectors."""
        embedded = await super().embed(texts)
        self.usage += embedded.usage
        return embedded


@cache
def thresholds() -> Thresholds:
    """Return the thresholds that ``combee doctor --embeddings`` proposes for the stand-in's embeddings."""
    proposal = proposed(labelled_pairs(), lambda text, lesson: cosine_of(vector(text), vector(lesson)))
    return Thresholds(meaning=proposal.meaning)


def measure(setup: Setup, data: Data, arm: Arm, seed: int, failing: Circumstances) -> Numbers:
    """Learn from all samples."""
    # A reflector neither overlooks nor checks: cells share what it said.
    reflecting = replace(failing.modes, overload=None, false_yes=0.0, false_no=0.0)
    made = reflections(replace(setup, modes=reflecting), data, seed)
    return setup.run(_learnt(setup, data, arm, seed, failing, made))


async def _learnt(
    setup: Setup, data: Data, arm: Arm, seed: int, failing: Circumstances, made: Sequence[Reflection]
) -> Numbers:
    law = Law(half_tokens=math.inf, steepness=1.0) if failing.law == NOTHING_LOST else parse_law(failing.law)
    model = SimulatedModel(
        seed=seed, knowledge=data.knowledge, cache=PrefixCache(), law=law, modes=failing.modes
    )
    tallied, embedder = Tallied(setup.paced(model, seed), mute=not failing.checks), CountedEmbedder()
    comparing = Comparing(vectors=Vectors(embedder), thresholds=thresholds()) if failing.embeds else BY_WORDS
    learnt = await learn(tallied, made, arm, failing.batch_size, comparing=comparing)
    worth = await exam(setup, model, data, learnt, made)
    return {
        **learnt.numbers(),
        **worth,
        **costs(learnt, tallied.checks, embedder.usage),
        **truth(learnt, made),
        "entries_per_lesson": len(learnt.texts) / max(1.0, worth["lessons"]),
    }


def costs(learnt: Learnt, checks: Usage, embeddings: Usage) -> Numbers:
    """Return the shares of the model's tokens that go to the check, and to it with what is asked again."""
    after = sum((update.result.usage for update in learnt.updates), Usage())
    before = sum((root.usage for root in learnt.roots), Usage())
    total = tokens(after) - tokens(embeddings)
    return {
        "check_calls": checks.calls,
        "check_share": tokens(checks) / total,
        "checked_share": (total - tokens(before)) / total,
        "embedding_share": tokens(embeddings) / total,
        "calls_in_a_row": learnt.seconds / len(learnt.updates),
    }


def tokens(usage: Usage) -> int:
    """Return the tokens read and written."""
    return usage.tokens_in + usage.tokens_out


def truth(learnt: Learnt, made: Iterable[Reflection]) -> Numbers:
    """Return the share of reflections that the model's own results say, and the audit's distance from it.

    Entries that were there before and that an update leaves alone count, as they do in the audit.
    """
    lessons = {one.reflection_id: key(lesson_of(one)) for one in made}
    bases = (empty(PLAYBOOK), *learnt.versions)
    batches = list(zip(bases, learnt.roots, learnt.updates, learnt.versions, strict=False))
    sizes = [version.reflections for *_, version in batches]
    right = [_right(base, root, update, lessons) for base, root, update, _ in batches]
    audits = [version.audit for *_, version in batches]
    off = [
        abs(count - (audit.verified if audit else 0)) / size
        for count, audit, size in zip(right, audits, sizes, strict=True)
    ]
    return {"true": sum(right) / sum(sizes), "off": fmean(off), "off_most": max(off)}


def _right(base: Playbook, root: NodeResult, update: Update, lessons: dict[str, str]) -> int:
    touched = {
        entry_id
        for operation in update.result.operations
        if operation.evidence
        for entry_id in operation.entry_ids
    }
    said = {key(entry.content) for entry in base.entries if entry.id not in touched}
    said |= {key(operation.content) for operation in root.operations}
    return sum(lessons[seen.reflection_id] in said for seen in root.seen if seen.ok)
