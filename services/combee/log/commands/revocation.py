"""Which reflections a revocation means, and what becomes of a playbook without them: looked up in the topics."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from combee.adapters.ports import Log, Record
from combee.core.batching.plan import calls_again
from combee.core.log.replaying.selection import TIMED, Selection, check_apart
from combee.core.names.identity import MARK, derived_ids, full_name, meant_by, owner_of
from combee.core.names.sources import NOBODY, KnownSources
from combee.core.playbook.lineage.branching import learns
from combee.core.playbook.lineage.recomputing import DEFAULTS, Fate, Mixed, Recomputed
from combee.core.playbook.operations import union
from combee.core.playbook.shown import needless_bytes
from combee.core.playbook.trust import names_counted
from combee.core.text.similarity.wording import said
from combee.log.evidence import identified, in_time, members_of
from combee.log.history import messages, newest_playbooks, partition_of
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.records import PROOF_HEADER

Rules = Mapping[str, Selection]
"""By their texts."""
LISTED = TIMED | {"source"}
"""Rules about what a manifest says of its members."""
NAMED = 20
"""Reflections that an error message lists."""
Matches = dict[str, dict[str, None]]
"""By the texts of rules: the reflections that they mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The reflections that are to be taken back."""

    ids: tuple[str, ...]
    rules: tuple[str, ...]
    """What chose them."""
    unknown: tuple[str, ...]
    """Ids and rules that mean no reflection of the playbook."""
    retained_from: int
    """Bodies before this offset of ``reflections`` have expired: words and traces are not known of them."""


async def meant(
    log: Log, lines: Sequence[Playbook], chosen: Sequence[str], *, now_ms: int, known: KnownSources = NOBODY
) -> Meant:
    """Return the reflections that ids (of a reflection or a trace) and rules mean: of a playbook and its branches.

    Sources, ids and times are known of all reflections, by the manifests; words, and traces that no id was derived
    from, only as long as the reflections are retained. The source of a reflection is what it was counted as, and its
    time when its batch was closed; if it still waits for one, what it claims or, by what is ``known``, proves, and
    ``now_ms``.

    Raises
    ------
    ValueError
        If a rule cannot be read, two select everything, or an id is that of several sources' reflections or runs.
    PoisonError
        If looking them up takes longer than a minute.
    """
    rules = {text: rule_of(text) for text in dict.fromkeys(chosen)}
    check_apart(rules.values())
    current = lines[0]
    source = await partition_of(log, topics.REFLECTIONS, current.name)
    retained_from = (await log.beginnings(source.topic))[source.partition]
    matches: Matches = {text: {} for text in rules}
    async with in_time(current):
        await _named(log, lines, rules, matches, known)
        if listed := {text: rule for text, rule in rules.items() if rule.kind in LISTED}:
            await _listed(log, current, listed, matches, now_ms, known)
        # A run's id any source may have named in a reflection of its own: these show in bodies alone.
        named = {
            text for text, rule in rules.items() if rule.kind == "id" and meant_by(rule.value, matches[text])
        }
        if by_body := {text: rules[text] for text in rules.keys() - named - listed.keys()}:
            await _retained(log, current.name, by_body, matches, now_ms, known)
    return Meant(
        ids=union(*matches.values()),
        rules=tuple(map(str, rules.values())),
        unknown=tuple(
            rule.value if rule.kind == "id" else text for text, rule in rules.items() if not matches[text]
        ),
        retained_from=retained_from,
    )


def rule_of(text: str) -> Selection:
    """Return the rule that a text is; one that begins like none is an id.

    Raises
    ------
    ValueError
        If it begins like a rule and cannot be read.
    """
    kind = text.partition(":")[0]
    is_rule = kind in {"source", "id", "text", "since", "until", "between"} and ":" in text
    return Selection.parse(text) if is_rule else Selection("id", text)


async def _named(
    log: Log, lines: Sequence[Playbook], rules: Rules, matches: Matches, proving: KnownSources
) -> None:
    """Find what ids mean: a reflection's own, or the trace that it was derived from."""
    by_id = {text: rule.value for text, rule in rules.items() if rule.kind == "id"}
    current = lines[0]
    if not by_id:
        return
    members = await members_of(log, current.name)
    # What a proven run became is named after its source, too.
    owners = {"", *(owner_of(member.source) for member in members.values())}
    candidates = {
        text: (value, *(own_id for owner in owners for own_id in derived_ids(current.name, value, owner)))
        for text, value in by_id.items()
    }
    known = {
        *current.revoked,
        *(reflection_id for line in lines for entry in line.entries for reflection_id in entry.evidence),
        *(member.reflection_id for member in members.values()),
    }
    async with aclosing(
        identified(log, current.name, current.through_offset + 1, members, proving)
    ) as waiting:
        known |= {reflection.reflection_id async for _, reflection in waiting}
    for text, (value, *derived) in candidates.items():
        ids = dict.fromkeys([*meant_by(value, known), *(own_id for own_id in derived if own_id in known)])
        if len(ids) > 1:
            raise _ambiguity(value, ids)
        matches[text] |= ids


def _ambiguity(value: str, ids: Iterable[str]) -> ValueError:
    names = sorted(map(full_name, ids))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    listed = f"{', '.join(names[:NAMED])}{more}"
    return ValueError(
        f"{value} means {len(names)} reflections of several sources or runs: name one of {listed}"
    )


async def _listed(
    log: Log, current: Playbook, rules: Rules, matches: Matches, now_ms: int, known: KnownSources
) -> None:
    """Find what rules about sources and times mean, by the manifests.

    What has no manifest yet has the time ``now_ms``. It has the source that it claims if claims count, or if it shows
    a proof.
    """
    through, names, batched = current.through_offset, names_counted(DEFAULTS), set[str]()
    async with aclosing(messages(log, topics.BATCHES, current.name)) as batches:
        async for batch in batches:
            through = max(through, batch.plan.through_offset)
            # Also beyond what waits for its source's share.
            batched.update(member.reflection_id for member in batch.members)
            if batch.plan.reason == "revoke":
                continue  # its members came with earlier batches
            names, at_ms = names_counted(batch.plan.settings), batch.plan.closed_at_ms
            for text, rule in rules.items():
                matches[text] |= {
                    member.reflection_id: None
                    for member in batch.members
                    if rule.lists(member.source, at_ms, names)
                }
    async with aclosing(identified(log, current.name, through + 1, known=known)) as reflections:
        async for record, reflection in reflections:
            if reflection.reflection_id in batched:
                continue
            is_claimed = names == "declared" or PROOF_HEADER in dict(record.headers)
            source = reflection.source if is_claimed else None
            for text, rule in rules.items():
                if rule.lists(source, now_ms):
                    matches[text][reflection.reflection_id] = None


async def _retained(
    log: Log, name: str, rules: Rules, matches: Matches, now_ms: int, known: KnownSources
) -> None:
    """Find what rules mean in all retained reflections."""
    async with aclosing(identified(log, name, known=known)) as reflections:
        async for _, reflection in reflections:
            for text, rule in rules.items():
                if rule.matches(reflection, now_ms):
                    matches[text][reflection.reflection_id] = None
    for text, rule in rules.items():
        if rule.kind == "id" and len({full_name(own_id).rpartition(MARK)[2] for own_id in matches[text]}) > 1:
            raise _ambiguity(rule.value, matches[text])


# ---- what becomes of the playbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a revocation does, before it is done; entries that the token budget evicts then are not foreseen."""

    reflections: tuple[str, ...]
    rules: tuple[str, ...]
    current: Playbook
    recomputed: Recomputed
    calls: int
    """To ask about the other reflections of mixed operations again, at most."""
    copies: tuple[tuple[str, str], ...]
    """Playbooks and their entries that say what goes from this one."""
    labels: Mapping[str, int] = field(default_factory=dict)
    branches: tuple["Outlook", ...] = ()
    """What it does on each branch of the playbook."""

    @property
    def _now(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self.recomputed.entries}

    @property
    def counters(self) -> list[tuple[str, int, int]]:
        """The entries that stay and lose tags: how many helpful and harmful ones."""
        lost = (
            (entry.id, entry.helpful - now.helpful, entry.harmful - now.harmful)
            for entry in self.current.entries
            if (now := self._now.get(entry.id))
        )
        return [(entry_id, helpful, harmful) for entry_id, helpful, harmful in lost if helpful or harmful]

    def changed(self, kind: str) -> list[str]:
        """Return the entries that go (``remove``), say something else (``update``) or come back (``add``)."""
        return [change.entry_id for change in self.recomputed.changes if change.kind == kind]

    def mixed(self, fate: Fate) -> list[Mixed]:
        """Return the operations that only a model could tell apart and that have this fate."""
        return [mixed for mixed in self.recomputed.mixed if mixed.fate == fate]

    @property
    def why_dropped(self) -> str:
        """Why nobody is asked about the other reflections of the operations that are dropped."""
        if not learns(self.current):
            return "this branch learns no more"
        return "other reflections that it rests on have expired"

    def as_document(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        was, now = {entry.id: entry for entry in self.current.entries}, self._now
        return {
            "name": self.current.name,
            "version": self.current.version,
            "reflections": list(self.reflections),
            "rules": list(self.rules),
            "removed": [
                {"id": entry_id, "content": was[entry_id].content} for entry_id in self.changed("remove")
            ],
            "changed_back": [
                {"id": entry_id, "before": was[entry_id].content, "after": now[entry_id].content}
                for entry_id in self.changed("update")
            ],
            "returned": [
                {"id": entry_id, "content": now[entry_id].content} for entry_id in self.changed("add")
            ],
            "counters": [
                {"id": entry_id, "helpful": -helpful, "harmful": -harmful}
                for entry_id, helpful, harmful in self.counters
            ],
            "mixed": [_as_document(mixed) for mixed in self.mixed("stays")],
            "asked_again": [_as_document(mixed) for mixed in self.mixed("again")],
            "dropped": [_as_document(mixed) for mixed in self.mixed("dropped")],
            "read_by_batches": list(self.recomputed.reads),
            "labels": dict(self.labels),
            "copies": [{"playbook": name, "id": entry_id} for name, entry_id in self.copies],
            "cost": {"reflections_asked_again": len(self.recomputed.again), "calls": self.calls},
            **({"branches": [outlook.as_document() for outlook in self.branches]} if self.branches else {}),
        }


def _as_document(mixed: Mixed) -> dict[str, Any]:
    return {name: value for name, value in asdict(mixed).items() if name not in {"fate", "again"}}


async def copies_of(log: Log, name: str, contents: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the entries of other playbooks (no lines of this one) that say one of these contents, as copies do."""
    known = {said(content) for content in contents}
    others = (await newest_playbooks(log)).values() if known else ()
    return tuple(
        (other.name, entry.id)
        for other in others
        if playbook_of(other.name) != playbook_of(name)
        for entry in other.entries
        if said(entry.content) in known
    )


async def calls_for(log: Log, name: str, recomputed: Recomputed) -> int:
    """Return how many calls it takes at most to ask again, under the settings of the last batch."""
    source = await partition_of(log, topics.REFLECTIONS, name)
    records = await log.read_at(source, sorted(asked.offset for asked in recomputed.again))
    sizes = [_weight(record, name) for _, record in sorted(records.items())]
    return calls_again(sizes, recomputed.settings)


def _weight(record: Record, line: str) -> int:
    reflection = topics.REFLECTIONS.read_or_none(record)
    return len(record.value or b"") - (needless_bytes(reflection, line) if reflection else 0)
