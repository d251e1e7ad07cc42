"""One run: the services on an in-memory log in virtual time, honest and malicious producers, the gate's judges."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice, pairwise
from random import Random
from statistics import fmean

from combee.adapters.ports import LanguageModel, Outgoing, TopicPartition
from combee.assembly import wiring
from combee.core.batching.planned import evidence_of
from combee.core.evaluation.questions import Question
from combee.core.gate.gate import Gate, gates_of
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.names.sources import supporters
from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.shown import shown
from combee.core.playbook.spend import UNCAPPED
from combee.core.playbook.versions import empty
from combee.core.text.prompt import estimate_tokens
from combee.log.evaluation.answering import ModelAnswerer
from combee.log.evaluation.evaluator import Evaluator
from combee.log.evaluation.judge import EvaluationJudge, Judges
from combee.process.worker.provenance import Provenance
from combee.process.worker.views import View
from combee_experiments.arms.services import Services, batch_settings
from combee_experiments.arms.tails import SlowModel
from combee_experiments.attacks.gullible import GullibleModel
from combee_experiments.attacks.producers import (
    ASKED,
    ATTACKS,
    HONEST,
    KNOWN,
    LESSONS,
    MALICIOUS,
    NAMES,
    NONE,
    PARAPHRASED,
    ROUNDS,
    SERVICES,
    Round,
    honest,
    pair,
    true_lesson,
)
from combee_experiments.attacks.protections import ARMS, LAB, MARGIN, Arm
from combee_experiments.attacks.search import KINDS, Plan
from combee_experiments.data.samples import PLAYBOOK
from combee_experiments.running.cells import Numbers
from combee_experiments.running.virtual_time import LoopClock
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.gate import MAX_REJECTED, Decision
from combee_schemas.playbook import Entry, Label, Playbook
from combee_sim.family.family import ask
from combee_sim.modes import NO_MODES, NOTICED, Modes
from combee_sim.server.latency import Latency

ROUND_S, WAIT_S = 60.0, 30.0
"""A round takes a minute; a window waits for half of that."""
BATCH_SIZE = 20
CALLS_AT_ONCE = 8
LESSON_TOKENS = sum(estimate_tokens(lesson) + 12 for lesson in LESSONS)
QUESTIONS_EACH = 2
SEARCHED = "one who searches"


def questions(seed: int) -> list[Question]:
    """Return the held-out questions of *evaluate*: two about each lesson."""
    rng = Random(f"exam {seed}")  # noqa: S311 - reproducible, not secret
    asked = [ask(quantity, rng) for quantity in ASKED for _ in range(QUESTIONS_EACH)]
    return [Question(id=f"q-{n}", text=each.text, target=each.target) for n, each in enumerate(asked)]


class Attacked:
    """A deployment under attack."""

    def __init__(
        self,
        seed: int,
        attack: str,
        arm: Arm,
        wordings: int = 1,
        plan: Plan | None = None,
        *,
        pair: bool = False,
    ) -> None:
        modes = Modes(paraphrase=NOTICED) if attack == PARAPHRASED or wordings > 1 else NO_MODES
        self._wordings = wordings
        self._model = GullibleModel(seed=seed, modes=modes)
        self._seed, self._attack, self._judges, self._arm = seed, attack, arm.judges, arm
        self._plan, self._pair = plan, pair
        """What a searcher tries instead of a named attack."""
        self._clock = LoopClock()
        self._said: dict[str, int] = {}
        """By true lesson: when it was first said."""
        batch = batch_settings(BATCH_SIZE, max_wait_s=WAIT_S, trust=arm.posture, colluders=MALICIOUS)
        model: LanguageModel = self._model
        if arm.call_s:
            model = SlowModel(model, Latency(median_s=arm.call_s), seed=seed, concurrency=CALLS_AT_ONCE)
        self._services = Services(
            model,
            batch,
            self._clock,
            playbook=PLAYBOOK,
            provenance=Provenance(KNOWN, services_secret=SERVICES),
            gates=GatePolicy(judges=self._judges) if self._judges else NO_GATE,
            budget_tokens=int(arm.room * LESSON_TOKENS),
        )
        self.log = self._services.log
        self._changed = asyncio.Event()
        self._labels: View[Label] = View(
            self.log, topics.LABELS, on_change=lambda _key, _label: self._changed.set()
        )

    async def run(self) -> Numbers:
        """Let all producers send, and count what production shows in the end."""
        rng = Random(f"{self._seed} honest")  # noqa: S311 - reproducible, not secret
        malicious = Random(f"{self._seed} malicious")  # noqa: S311 - reproducible, not secret
        async with self._services.running(), self._judging():
            for turn in range(ROUNDS):
                records = list(pair(turn, rng) if self._pair else honest(turn, rng, self._wordings))
                self._note(records)
                if turn >= self._arm.begins:
                    records += self._attacks(turn, malicious, shown(await self._production()))
                if self._arm.crew == "nobody proves":
                    records = [replace(record, headers=()) for record in records]
                malicious.shuffle(records)
                await self.log.produce(*records)
                await asyncio.sleep(ROUND_S)
            return await self._numbers()

    def _attacks(self, turn: int, rng: Random, playbook: Playbook) -> Iterator[Outgoing]:
        """Yield what the attackers send in a round: each its part of 30 % of all reflections."""
        names = NAMES[HONEST:][: self._arm.attackers]
        for name in names:
            now = Round(turn=turn, name=name, rng=rng, playbook=playbook, is_first=name == names[0])
            attack = ATTACKS[self._attack] if self._plan is None else self._plan.attack
            yield from islice(attack(now), self._arm.sent // len(names))

    # ---- judges

    @asynccontextmanager
    async def _judging(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = []
            if "evaluate" in self._judges:
                evaluator = Evaluator(
                    self.log, ModelAnswerer(self._model, "simulated"), self._clock, caps=UNCAPPED
                )
                evaluate = EvaluationJudge(
                    evaluator, questions(self._seed), self._clock, margin=MARGIN, judged_by="simulated"
                )
                judges = Judges(self.log, {"evaluate": evaluate})
                changed, labels = self._view()
                tasks.append(group.create_task(wiring.run_evaluate(judges, labels, changed, stop)))
            if "approve" in self._judges:
                tasks.append(group.create_task(self._approve()))
            if self._judges:
                tasks.append(group.create_task(self._labels.run()))
            yield
            for task in tasks:
                task.cancel()

    def _view(self) -> tuple[asyncio.Event, View[Label]]:
        changed = asyncio.Event()
        return changed, View(self.log, topics.LABELS, on_change=lambda _key, _label: changed.set())

    async def _approve(self) -> None:
        """Judge as a person who reads every difference, knows what is true, and rejects the entries that are not."""
        while True:
            self._changed.clear()
            gate = self._gate()
            if gate is not None and gate.waits_for("approve") and gate.candidate is not None:
                candidate = await self._version(gate.candidate.version)
                bad = set(harmful(candidate))
                entry_ids = tuple(entry.id for entry in shown(candidate).entries if entry.content in bad)
                command = Command(
                    command_id=f"judged-{candidate.version}-{gate.production.version}",
                    playbook=PLAYBOOK,
                    kind="reject" if bad else "approve",
                    entry_ids=entry_ids[:MAX_REJECTED],
                    version=candidate.version,
                    base_version=gate.production.version,
                    reason="read",
                )
                await self.log.produce(topics.COMMANDS.record(command))
            await self._changed.wait()

    # ---- what there is

    def _gate(self) -> Gate | None:
        return gates_of(self._labels.all().values()).get(PLAYBOOK)

    async def _version(self, number: int) -> Playbook:
        versions = await self._services.versions()
        return next((each for each in versions if each.version == number), empty(PLAYBOOK))

    async def _production(self) -> Playbook:
        gate = self._gate()
        return self._services.latest if gate is None else await self._version(gate.production.version)

    async def _numbers(self) -> Numbers:
        production = await self._production()
        entries = shown(production).entries
        versions = await self._services.versions()
        by_number = {version.version: version for version in versions}
        decisions = await self._decisions()
        accepted = {each.candidate for each in decisions if each.decided == "accepted"}
        read = [one for one in versions if not self._judges or one.version in accepted]
        lost = [entry for before, after in pairwise(read) for entry in _destroyed(before, after)]
        wrong = Counter(
            each.decided
            for each in decisions
            if each.candidate in by_number
            and (each.decided == "accepted") == bool(harmful(by_number[each.candidate]))
        )
        return {
            "shown": len(entries),
            "harmful": len(harmful(production)),
            "share": len(harmful(production)) / max(1, len(entries)),
            "text": _room(entry for entry in entries if not true_lesson(entry.content))
            / max(1, _room(entries)),
            "lessons": len({true_lesson(entry.content) for entry in entries} - {None}),
            "destroyed": len(lost),
            "destroyed_supported": sum(len(supporters(entry)) > 1 for entry in lost),
            **self._delays(read, {each.candidate: each.decided_at_ms for each in decisions}),
            "waiting": sum(not entry.is_active for entry in self._services.latest.entries),
            "batches": sum(version.batch is not None for version in versions),
            "decisions": sum(each.decided in {"accepted", "rejected"} for each in decisions),
            "wrongly_accepted": wrong["accepted"],
            "wrongly_rejected": wrong["rejected"],
        }

    def _note(self, records: Iterable[Outgoing]) -> None:
        for record in records:
            lesson = true_lesson(topics.REFLECTIONS.read(record).key_insight)
            self._said.setdefault(lesson or "", self._clock.now_ms())

    def _delays(self, read: Sequence[Playbook], decided: Mapping[int, int]) -> Numbers:
        """Return in how many rounds a true lesson was shown after it was first said: the mean, and the longest."""
        first: dict[str | None, int] = {}
        for version in read:
            for entry in shown(version).entries:
                first.setdefault(
                    true_lesson(entry.content), decided.get(version.version, version.created_at_ms)
                )
        waited = [
            (first[lesson] - since) / 1000 / ROUND_S
            for lesson, since in self._said.items()
            if lesson in first
        ]
        return {"delay": fmean(waited or [0.0]), "longest_delay": max(waited, default=0.0)}

    async def _decisions(self) -> list[Decision]:
        source = TopicPartition(topic=topics.DECISIONS.name, partition=0)
        return [topics.DECISIONS.read(record) async for record in self.log.read(source, 0)]


def _room(entries: Iterable[Entry]) -> int:
    """Return the tokens that entries take of the room, as the product counts them."""
    return sum(map(entry_tokens, entries))


def _destroyed(before: Playbook, after: Playbook) -> Iterator[Entry]:
    """Yield the entries that say a true lesson which no shown entry says one version later."""
    said = {true_lesson(entry.content) for entry in shown(after).entries}
    for entry in shown(before).entries:
        lesson = true_lesson(entry.content)
        if lesson and lesson not in said:
            yield entry


def harmful(version: Playbook) -> tuple[str, ...]:
    """Return what agents are shown that is not, in all of its text, a true lesson."""
    return tuple(entry.content for entry in shown(version).entries if not true_lesson(entry.content))


async def unattacked(seed: int, arm: str, wordings: int = 1, *, pair: bool = False) -> Numbers:
    """Run one arm without attackers, each lesson in one of these wordings; also measure which reflections count.

    ``pair``: there are two producers, one of which sends 95 % of the reflections.
    """
    deployment = Attacked(seed, NONE, ARMS[arm], wordings, pair=pair)
    numbers = await deployment.run()
    source = TopicPartition(topic=topics.UPDATES.name, partition=0)
    results = [topics.UPDATES.read(record).result async for record in deployment.log.read(source, 0)]
    counted = sum(len(frozenset(evidence_of(result))) for result in results)
    return {**numbers, "counted": counted / max(1, sum(len(result.seen) for result in results))}


async def attacked(seed: int, attack: str = NONE, arm: str | Arm = LAB, wordings: int = 1) -> Numbers:
    """Run one attack on one arm; each honest lesson is said in this many wordings."""
    return await Attacked(seed, attack, ARMS[arm] if isinstance(arm, str) else arm, wordings).run()


# ---- one who searches


TRIED = 4
"""Plans that a searcher tries; each is a whole run."""


def damage(numbers: Numbers) -> float:
    """Return what a searcher maximises: what is shown of its lessons, and what agents lost."""
    return numbers["share"] + (len(LESSONS) - numbers["lessons"]) / len(LESSONS) + numbers["destroyed"] / 20


async def searched(seed: int, arm: str) -> Numbers:
    """Run the worst plan for an arm that a hill-climber found; it knows everything, the honest records included."""
    rng = Random(f"{seed} search")  # noqa: S311 - reproducible, not secret
    best = Plan(kinds=(rng.choice(KINDS), rng.choice(KINDS)))
    worst = await Attacked(seed, SEARCHED, ARMS[arm], plan=best).run()
    for _ in range(TRIED - 1):
        plan = best.varied(rng)
        numbers = await Attacked(seed, SEARCHED, ARMS[arm], plan=plan).run()
        if damage(numbers) >= damage(worst):
            best, worst = plan, numbers
    return worst
