"""The same life with an attacker and without him, where everybody puts a lesson into other words.

The curator believes what it reads, says it in its own words and overlooks some of it; the check call knows what each
text means, and errs nowhere. What others and the model do depends on the seed and the step, not on who else speaks.
Nothing here knows the rules.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import pytest

from combee.core.methods.checking import Checked
from combee.core.playbook.versions import empty
from combee_schemas.base import Shown
from combee_schemas.reflection import Reflection
from support.teaching import PUBLIC, TEAM, Teaching, op, rejected

SEEDS, STEPS = (*range(40), 461), 7
LESSONS = "pqr"
"""What is true. A capital letter means the contrary, and anything else is the attacker's, too."""
WORDS = ["".join(letters) + "x" for letters in product("bcdfglmr", "aeiou", repeat=2)]
WORDINGS, SAID = 9, 6
"""Of each lesson, and of these what honest sources say at most; the others are the curator's."""
SETTINGS = {"team": (TEAM, "abcd", "x", SAID), "public": (PUBLIC, "abcdefg", "xyz", 2)}
"""Rules, honest sources and attackers, and in how many wordings the honest say a lesson."""


class World:
    """What everybody may say, and what it means."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.meaning: dict[str, str] = {}
        self.texts: dict[str, list[str]] = defaultdict(list)
        chance, words = self.chance("words"), list(WORDS)
        chance.shuffle(words)
        for what in (*LESSONS, "hostile"):
            subject = [words.pop() for _ in range(3)]
            for n in range(WORDINGS):
                text = [*subject[: chance.randint(1, 3)], *(words.pop() for _ in range(chance.randint(2, 4)))]
                chance.shuffle(text)
                self._put(what, text)
                if what in LESSONS:
                    self._put(what.upper(), ["never", *text] if n % 2 else [*text[:-1], words.pop()])
                    self._put(f"{what} and more", [*text, "and", words.pop()])

    def _put(self, what: str, text: Sequence[str]) -> None:
        self.texts[what].append(" ".join(text).capitalize())
        self.meaning[self.texts[what][-1]] = what

    def chance(self, *of: object) -> Random:
        """Return what is left to chance, the same in both lives."""
        return Random(f"{self.seed} {of}")

    def check(self, lessons: Sequence[str], statements: Sequence[str]) -> Checked:
        """Answer as a check call that errs nowhere, and names one of several statements that say the same."""
        covered, against = list[tuple[int, int]](), list[tuple[int, int]]()
        for n, lesson in enumerate(lessons):
            chance, what = self.chance(lesson), self.meaning[lesson]
            named = sorted(range(len(statements)), key=lambda _: chance.random())
            saying = [at for at in named if self.meaning[statements[at]] == what]
            contrary = [at for at in named if self.meaning[statements[at]] == what.swapcase()]
            covered += [(n, at) for at in saying[: chance.choice([1, 9])]]
            against += [(n, at) for at in contrary if not saying]
        return Checked(covered=tuple(covered), against=tuple(against))


@dataclass(slots=True)
class Life(Teaching):
    """A playbook, and a curator that says everything in its own words."""

    world: World = field(default_factory=lambda: World(0))
    overlooks: bool = True
    """Whether the curator overlooks some of what it reads."""
    everything: list[Reflection] = field(default_factory=list)

    def saying(self, what: str) -> list[str]:
        """Return the entries that agents are shown and that mean something."""
        there = (one for one in self.playbook.entries if one.is_active)
        return [one.id for one in there if self.world.meaning[one.content] == what]

    def meanings(self) -> list[str]:
        """Return what agents are shown."""
        return [self.world.meaning[text] for text in self.shown()]

    def shown_it(self) -> None:
        """Let the agent that spoke last have been shown the playbook."""
        ids = tuple(one.id for one in self.playbook.entries if one.is_active)
        shown = Shown(version=self.playbook.version, entry_ids=ids)
        self.batch[-1] = self.batch[-1].model_copy(update={"shown": shown})

    def teach(self, step: int) -> None:
        """Let the curator believe all that was said."""
        items: dict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(self.batch, 1):
            items[self.world.meaning[one.key_insight]].append(number)
        operations, known = list[Mapping[str, Any]](), dict[int, str]()
        for what, sources in items.items():
            chance = self.world.chance("curator", step, what)
            how, there = chance.random() if self.overlooks else 0.0, self.saying(what)
            if there and how < 0.7:
                known |= dict.fromkeys(sources, chance.choice(there))
            elif how < 0.85:
                said = self.batch[chance.choice(sources) - 1].key_insight
                operations.append({**self.operation(what, said, chance), "sources": sources})
        for number, one in enumerate(self.batch, 1):
            if harmful := [tag.id for tag in one.bullet_tags if tag.tag == "harmful"]:
                operations.append({**op("REMOVE", "", harmful[0]), "sources": [number]})
        self.everything += self.batch
        self.learn(*operations, known=known, check=self.world.check)
        while again := [asked.offset for asked in self.playbook.again]:
            self.batch = [self.everything[offset - 1] for offset in again]
            self.learn(check=self.world.check, reason="revoke")

    def operation(self, what: str, said: str, chance: Random) -> Mapping[str, Any]:
        """Return what the curator makes of what was said."""
        there, wrong = self.saying(what), self.saying(what.swapcase() if len(what) == 1 else what[0])
        text = said if chance.random() < 0.3 else chance.choice(self.world.texts[what][SAID:] or [said])
        kind = chance.choice(["UPDATE", "REMOVE", "ADD"])
        if there:
            return op("MERGE" if there[1:] else "UPDATE", text, *there[:2])
        if wrong and kind != "ADD":
            return op(kind, "" if kind == "REMOVE" else text, wrong[0])
        return op("ADD", text)

    def attack(self, chance: Random, source: str) -> None:
        """Let an attacker say something: what is hostile, contrary or true, and what is there or was said."""
        entries = self.playbook.entries
        words = [
            [text for meaning in self.world.texts.values() for text in meaning],
            *([one.content for one in entries if one.is_active is shown] for shown in (True, False)),
            [one.key_insight for one in self.batch],
            [one.key_insight for one in self.everything if one.source and one.source.name == source],
        ]
        lesson, advice = (chance.choice(chance.choice([some for some in words if some])) for _ in range(2))
        harmful, helpful = ([one.id for one in entries if chance.random() < 0.2] for _ in range(2))
        advice = advice if chance.random() < 0.9 else ""
        self.say(lesson, source, harmful=harmful, helpful=helpful, advice=advice)
        if chance.random() < 0.4:
            self.shown_it()


def steps(posture: str, seed: int, *, attacked: bool, **given: Any) -> Iterator[tuple[Life, set[str]]]:
    """Yield a life after each batch, and what at least two said in it without having been shown it."""
    rules, honest, attackers, wordings = SETTINGS[posture]
    world = World(seed)
    life = Life(rules=rules, world=world, **given)
    theirs = 0
    for step in range(STEPS):
        chance, other = world.chance("said", step), world.chance("attack", step)
        about = chance.sample(LESSONS, chance.randint(1, 3))
        said = [one for one in honest for _ in range(chance.choice([0, 1, 1, 2]))]
        own = [one.id for one in life.playbook.entries if {*one.sources} <= {*attackers}]
        if own and other.random() < 0.4:
            life.playbook = rejected(life.playbook, other.choice(own), empty("p"))
        news: dict[str, set[str]] = defaultdict(set)
        for source in said:
            while attacked and theirs < 0.3 * max(life.count, 8) and other.random() < 0.3:
                theirs += 1
                life.attack(other, other.choice(attackers))
            what = chance.choice(about)
            life.say(chance.choice(world.texts[what][:wordings]), source)
            if chance.random() < 0.3:
                life.shown_it()
            else:
                news[what].add(source)
        life.teach(step)
        yield life, {what for what, by in news.items() if len(by) > 1}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("posture", SETTINGS)
def test_whatever_words_lessons_have_no_attacker_takes_one_from_agents(posture: str, seed: int) -> None:
    attackers = {*SETTINGS[posture][2]}
    lives = (steps(posture, seed, attacked=attacked) for attacked in (True, False))
    supported, told = set[str](), set[str]()
    for (among, news), (without, _) in zip(*lives, strict=True):
        shown, told = {*among.meanings()}, told | news
        assert news <= shown if posture == "team" else shown <= {*LESSONS}
        if not among.playbook.rejected:
            assert supported <= shown
            assert told.intersection(without.meanings()) <= shown
        others = (one for one in among.playbook.entries if one.is_active and not {*one.sources} <= attackers)
        supported = {among.world.meaning[one.content] for one in others}.intersection(LESSONS)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_attackers_each_lesson_is_shown_at_once_and_in_no_other_words_later(seed: int) -> None:
    most: dict[str, int] = {}
    for life, _ in steps("team", seed, attacked=False, overlooks=False):
        shown = Counter(life.meanings())
        assert {life.world.meaning[one.key_insight] for one in life.everything} == {*shown}
        assert all(one.is_active for one in life.playbook.entries)
        assert all(count <= most.setdefault(what, count) for what, count in shown.items())
