"""A playbook behind a gate that learns and is judged, and what is promised of it: texts, and who says them."""

from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import Any

from combee.core.gate.policy import GatePolicy, Judges
from combee.core.names import identity
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import empty
from combee_schemas.plan import CloseReason
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Update
from support import gates
from support.ledger import NAME, dead_letters, outgoing, versions
from support.planned import PlanningDeployment
from support.teaching import Teaching

LINE, PERSON, ATTACKER = f"{NAME}@short", "a person", "x"
Taught = dict[str, set[str]]
"""By text: the reflections that say it, or a person."""


def contents(version: Playbook) -> list[str]:
    return [entry.content for entry in shown(version).entries]


def says(version: Playbook, *texts: str) -> bool:
    """Return whether one of these is shown; a consolidation may have set it next to others."""
    return any(text in content for content in contents(version) for text in texts)


class Gated:
    """A gated playbook, a branch of it, and what is promised of both."""

    def __init__(self, rules: Mapping[str, Any], judges: Judges) -> None:
        self.deployment = PlanningDeployment(gates=GatePolicy(judges=judges))
        self.rules, self.judges, self.random = rules, judges, Random()
        self.teaching = Teaching(rules=rules)
        self.said = dict[str, Reflection]()
        self.taught: dict[str, Taught] = {NAME: {}, LINE: {}}
        self.at = dict[int, Taught]()
        self.made: dict[int, tuple[int, Collection[str]]] = {0: (0, ())}
        """By version: which one it began with, and the reflections of its batch."""
        self.asked = dict[int, Collection[str]]()
        """By version: the lessons that it asked about again."""
        self.excused, self.revoked, self.rejected = set[str](), set[str](), set[str]()
        self.permitted, self.is_barred, self.is_ending = {0}, False, False

    # ---- what there is

    def newest(self, line: str = NAME) -> Playbook:
        return next(reversed(versions(self.deployment.log, line)), empty(line))

    def version(self, number: int) -> Playbook:
        return next((one for one in versions(self.deployment.log) if one.version == number), empty(NAME))

    def places(self) -> tuple[int, int]:
        return gates.places(self.deployment.log) if self.newest().version else (0, 0)

    def learned(self, number: int) -> set[str]:
        """Return the reflections of the batches that are in a version."""
        before, ids = self.made[number]
        return {*ids, *self.learned(before)} if number else set()

    def is_supported(self, by: Collection[str]) -> bool:
        sources = {one.source.name for name, one in self.said.items() if name in by and one.source}
        waits, quorum = self.rules.get("probation"), self.rules.get("colluders", 0) + 1
        enough = len(sources) >= quorum and len(by) >= (waits.reflections if waits else 1)
        return PERSON in by or enough

    # ---- what is sent

    async def send(self, message: Any) -> None:
        await self.deployment.log.produce(outgoing(message))
        await self.deployment.until(lambda: gates.over(self.deployment))
        assert not dead_letters(self.deployment.log), dead_letters(self.deployment.log)[-1].reason

    async def command(self, kind: str, **fields: Any) -> None:
        await self.send(gates.command(kind, f"c-{self.random.random()}", **fields))

    async def planned(self, made: Update, line: str, **plan: Any) -> None:
        """Send what a batch made on a line."""
        sequence = self.newest(line).batch_sequence + 1
        ids = {"playbook": line, "sequence": sequence, "batch_id": identity.batch_id(line, sequence)}
        planned = made.plan.model_copy(update={**ids, **plan})
        await self.send(made.model_copy(update={"plan": planned, "node_id": f"n-{line}-{sequence}"}))

    def note(self, ids: Collection[str] = (), began: int | None = None) -> None:
        """Note what is promised of the newest version."""
        number, taught = self.newest().version, self.taught[NAME]
        self.made.setdefault(number, (number - 1 if began is None else began, ids))
        self.at[number] = {text: {*by} for text, by in taught.items()}

    def take_back(self, ids: Iterable[str]) -> None:
        self.revoked |= {*ids}
        for taught in self.taught.values():
            for by in taught.values():
                by.difference_update(self.revoked)

    def again_from(self, known: Taught) -> Taught:
        """Return what is left of a version that is there again."""
        return {text: by - self.revoked for text, by in known.items() if text not in self.rejected}

    async def learn(
        self,
        *operations: Mapping[str, Any],
        reason: CloseReason = "size",
        base: Playbook | None = None,
        line: str = NAME,
    ) -> None:
        self.teaching.playbook = self.newest(line)
        # They are of agents that read this playbook: otherwise their tags are of other entries.
        self.teaching.batch = [one.model_copy(update={"playbook": NAME}) for one in self.teaching.batch]
        said = {one.reflection_id: one for one in self.teaching.batch}
        self.said |= said
        self.teaching.learn(*operations, base=base, reason=reason)
        made = self.teaching.past[-1][1]
        assert made is not None
        await self.planned(made, line, reflections=len(said))
        for one, reflection in said.items():
            is_out = one in self.revoked or (
                self.is_barred and reflection.source is not None and reflection.source.name == ATTACKER
            )
            if not is_out and reflection.key_insight not in self.rejected:
                self.taught[line].setdefault(reflection.key_insight, set()).add(one)
        if line == NAME:
            self.note(said if reason == "size" else ())
            self.asked[self.newest().version] = [
                one.key_insight for one in said.values() if reason == "revoke"
            ]
