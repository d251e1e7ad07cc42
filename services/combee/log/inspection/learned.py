"""The fate of learned items: their progress, their effect, and items without a trace in the playbook."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from combee.adapters.ports import Log
from combee.core.formats.intake import Item, Sample
from combee.core.formats.items import learned_id, own_id
from combee.core.log.fates import Fate
from combee.core.names.identity import fingerprint
from combee.core.names.sources import Signer
from combee.core.playbook.operations import union
from combee.core.playbook.retention import ReflectionEffect, audit_of, reflection_effects
from combee.core.playbook.shown import counts
from combee.core.playbook.versions import drafted
from combee.log.evidence import with_revoked
from combee.log.history import messages, partition_of
from combee.log.inspection.tracker import Tracker
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.playbook import Audit, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Update
from combee_schemas.topics import Topic
from combee_schemas.trace import Trace

M = TypeVar("M", Playbook, Update)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run: of ``total`` new items, the numbers of reflections, batched and applied ones."""

    total: int
    reflected: int
    batched: int
    applied: int
    dead: int = 0

    @property
    def left(self) -> dict[str, int]:
        """Numbers of items that still have to pass each stage."""
        passed = {"reflected": self.reflected, "batched": self.batched, "applied": self.applied}
        return {stage: max(0, self.total - self.dead - count) for stage, count in passed.items()}


@dataclass(slots=True, kw_only=True)
class Report:
    """The report on a run; ``as_json`` is the documented form."""

    playbook: Playbook
    published: int = 0
    applied: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    rejected: int = 0
    conflicts: tuple[str, ...] = ()
    """Ids of lines that were not learned: the playbook has other content under them."""
    batches: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    audit: Audit = field(default_factory=Audit)
    """The audit of the applied reflections."""
    left_nothing: dict[str, list[str]] = field(default_factory=dict)
    """By reason: the reflections (by their traces' ids, if they have one) without a trace in the playbook."""

    def as_json(self) -> dict[str, object]:
        """Return the stable form of ``learn --json``."""
        return {
            "playbook": self.playbook.name,
            "version": self.playbook.version,
            **counts(self.playbook),
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
            "tokens": self.usage.tokens(),
            "seconds": round(self.seconds, 3),
            "audit": self.audit.model_dump(),
            "left_nothing": self.left_nothing,
        }


def new_items(items: Sequence[Item], tracker: Tracker, signer: Signer | None = None) -> dict[str, Item]:
    """Return the items that no version contains yet, by the id of their reflection, each once."""
    new: dict[str, Item] = {}
    for item in items:
        if not tracker.is_applied(learned_id(item, signer)):
            new.setdefault(learned_id(item, signer), item)
    return new


async def conflicting(
    items: Sequence[Item], tracker: Tracker, signer: Signer | None = None
) -> list[Trace | Reflection]:
    """Return the items whose id has other content in the playbook: they are not learned."""
    # An agent's answer to a sample differs from run to run, the sample does not.
    comparable = [item for item in items if not isinstance(item, Sample)]
    counted: dict[str, str] = {}
    for item in comparable:
        counted.setdefault(learned_id(item, signer), fingerprint(item))
    counted |= {
        reflection_id: known for reflection_id, known in (await tracker.counted(counted)).items() if known
    }
    return [item for item in comparable if fingerprint(item) != counted[learned_id(item, signer)]]


def all_reflected(tracker: Tracker, new: Iterable[str]) -> bool:
    """Return whether every item has become a reflection or a dead letter."""
    return all(tracker.is_reflected(own_id) or tracker.fate(own_id).is_dead for own_id in new)


def progress_of(tracker: Tracker, new: Mapping[str, Item]) -> Progress:
    """Return the progress of these items."""
    fates = [tracker.fate(reflection_id) for reflection_id in new]
    return Progress(
        dead=sum(fate.is_dead for fate in fates),
        total=len(new),
        reflected=sum(tracker.is_reflected(reflection_id) for reflection_id in new),
        batched=sum(reflection_id in tracker.batch_of for reflection_id in new),
        applied=sum(fate == Fate.APPLIED for fate in fates),
    )


# ---- the fate of each item


async def ends_before(log: Log) -> dict[str, Mapping[int, int]]:
    """Return the present ends of the topics that will show the fate of items."""
    return {topic.name: dict(await log.ends(topic.name)) for topic in (topics.UPDATES, topics.HISTORY)}


async def effects(
    log: Log,
    base: Playbook,
    since: Mapping[str, Mapping[int, int]],
    new: Mapping[str, Item],
    today: Callable[[str], str],
) -> tuple[Audit, dict[str, list[str]]]:
    """Return the effects of ``new`` on the versions made since, and the items without a trace, by reason.

    ``today`` returns the id of a reflection in ``new``.
    """
    updates: dict[int, Update] = {}
    for update in await _read(log, topics.UPDATES, base.name, since):
        updates.setdefault(update.plan.sequence, update)
    before = await with_revoked(log, base)
    applied: list[ReflectionEffect] = []
    ids_by_reason = defaultdict[str, list[str]](list)
    for after in await _read(log, topics.HISTORY, base.name, since):
        made_by = updates.get(after.batch_sequence) if after.origin == "batch" else None
        for counted_as, effect in (
            reflection_effects(drafted(before, made_by), made_by, after) if made_by else {}
        ).items():
            reflection_id = today(counted_as)
            if reflection_id in new:
                applied.append(effect)
                if effect.why:
                    ids_by_reason[effect.why].append(own_id(new[reflection_id]))
        before = after.model_copy(update={"revoked": union(before.revoked, after.revoked)})
    return audit_of((effect.seen, effect.effect) for effect in applied), dict(ids_by_reason)


async def _read(log: Log, topic: Topic[M], name: str, since: Mapping[str, Mapping[int, int]]) -> list[M]:
    start = since[topic.name][(await partition_of(log, topic, name)).partition]
    return [message async for message in messages(log, topic, name, start)]
