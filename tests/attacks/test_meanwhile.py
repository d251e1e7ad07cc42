"""The same life with and without what a person writes while batches are under way: nothing is lost on either side.

Honest sources teach, correct, unite and remove, as many as are needed or fewer; the curator puts down what they say.
In one of the two lives a person rewrites an entry, or adds one, after the batches have read it. A life depends on its
seed alone.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from combee.core.playbook import executing
from combee_schemas.plan import Probation
from combee_schemas.playbook import Playbook
from support.playbooks import ADD, UPDATE, command
from support.playbooks import op as edit
from support.teaching import LESSONS, PUBLIC, TEAM, Teaching, op

SEEDS = range(150)
RULES: Mapping[str, Mapping[str, Any]] = {
    "team": TEAM,
    "waits": {**TEAM, "probation": Probation(reflections=2)},
    "public": {**PUBLIC, "colluders": 1},
}
LINE = "A person wrote this line"
Reading = tuple[Teaching, Playbook]
"""A life, and the version of it that a batch reads."""


def ids_in(version: Playbook) -> dict[str, str]:
    """Return the ids of what agents are shown, by content."""
    return {entry.content: entry.id for entry in version.entries if entry.is_active}


def teach(lives: Sequence[Reading], random: Random, kinds: Sequence[str], step: int, of: str = "") -> None:
    """Let some sources say lessons, and some change what agents are shown in all lives; nobody unites ``of``."""
    said = [(random.choice(LESSONS), source) for source in "abcd" for _ in range(random.choice([0, 1, 1]))]
    shown = sorted(set.intersection(*(set(ids_in(version)) for _, version in lives)))
    kind, by = random.choice(kinds), "abcd"[random.randrange(4) :]
    about = random.sample(shown, min(len(shown), 2 if kind == "MERGE" else 1))
    is_change = kind and about and not (kind == "MERGE" and of in about)
    for life, version in lives:
        for lesson, source in said:
            life.say(lesson, source)
        operations = list[Mapping[str, Any]]()
        if is_change:
            news, ids = f"{about[0]} in case {step}", [ids_in(version)[content] for content in about]
            life.say(news, by, harmful=ids)
            life.read(version)
            numbers = [len(life.batch) - back for back in range(len(by))]
            operations = [{**op(kind, "" if kind == "REMOVE" else news, *ids), "sources": numbers}]
        if life.batch:
            life.learn(*operations, base=version)


def write(life: Teaching, content: str, of: str) -> None:
    """Let a person rewrite an entry, or add one."""
    operation = edit(UPDATE, content, life.id_of(of)) if of else edit(ADD, content)
    given = command("edit", operations=(operation,))
    life.playbook = executing.after_command(
        life.playbook, given, 0, target=None, budget_tokens=life.budget, now_ms=0
    )
    life.past.append((life.playbook, None))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rules", RULES)
def test_what_a_person_writes_meanwhile_stays_and_what_others_taught_then_is_not_lost(
    rules: str, seed: int
) -> None:
    random = Random(seed)
    written, untouched = lives = Teaching(rules=RULES[rules]), Teaching(rules=RULES[rules])
    for step in range(random.choice([1, 2, 3])):
        teach([(life, life.playbook) for life in lives], random, ["UPDATE", "REMOVE", ""], step)
    read = [(life, life.playbook) for life in lives]
    of = random.choice([*sorted(written.shown()), ""])
    line = random.choice([LINE, f"{of} {LINE}".strip()])
    write(written, line, of)
    for step in range(3, 6):
        if random.random() < 0.7:
            teach(read, random, ["UPDATE", "REMOVE", "MERGE", ""], step, of)
        else:
            teach([(life, life.playbook) for life in lives], random, [""], step)
        assert line in written.shown()
        kept = {entry.content for entry in written.playbook.entries}
        assert untouched.shown() - {of} <= kept


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rules", RULES)
def test_what_other_batches_wrote_meanwhile_stays(rules: str, seed: int) -> None:
    random, life = Random(seed), Teaching(rules=RULES[rules])
    past = [life.playbook]
    for step in range(8):
        read, before = random.choice(past[-4:]), ids_in(life.playbook)
        teach([(life, read)], random, ["UPDATE", "REMOVE", ""], step)
        assert before.keys() - {entry.content for entry in read.entries} <= life.shown()
        past.append(life.playbook)
