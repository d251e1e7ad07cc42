"""How large a playbook may be: its token budget, the room of a version's record, and what is evicted; pure."""

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from types import MappingProxyType

from combee.core.names.sources import counting, supporters
from combee_schemas.model import CHARS_PER_TOKEN
from combee_schemas.playbook import ACE_SECTIONS, MAX_BUDGET_TOKENS, Entry, Playbook

PROPOSED_SHARE = 4
"""Proposed entries may use this part of the token budget, in addition to it: 1 / PROPOSED_SHARE."""
IMPORT_ROOM = 4
"""Batches may add 1 / IMPORT_ROOM of an import's size to it before anything is evicted."""
ROUNDED_TO = 1_000
ENTRIES_BYTES = 600 << 10
"""Maximum bytes of a version's entries without evidence and names: the rest of the record is for bookkeeping.

Newly revoked ids alone may take 256 KiB of it."""
NAMES_BYTES = 128 << 10
"""Maximum bytes of the names of the sources behind what waits: without them it would wait for ever."""
ENTRY_BYTES = 200
"""Bytes of an entry's field names and numbers in a record."""

LAYOUT = 4
"""Characters of an entry's line in addition to its id and content."""
HEADER = 5
"""Characters of a header's lines in addition to its name."""

Parts = Mapping[str, Fraction]
"""By source, its part of the playbook's reflections; of one source it bounds nothing."""
UNBOUNDED: Parts = MappingProxyType({})


def budget_of(playbook: Playbook, configured_tokens: int) -> int:
    """Return a playbook's token budget: its own, which an import brought, where that is the larger one."""
    return max(configured_tokens, playbook.budget_tokens)


def budget_text(playbook: Playbook, configured_tokens: int) -> str:
    """Return a playbook's token budget in words; empty if it is the configured one."""
    if playbook.budget_tokens <= configured_tokens:
        return ""
    return (
        f"budget {playbook.budget_tokens:,} tokens, which an import brought (COMBEE_PLAYBOOK_TOKENS:"
        f" {configured_tokens:,})"
    )


def budget_for(given: Playbook, entries: Sequence[Entry]) -> int:
    """Return the token budget that an import asks for: as its file says if that suffices, else with room to learn."""
    tokens = needed_tokens(entries, given.sections)
    if given.budget_tokens >= tokens:
        return given.budget_tokens
    wanted = tokens * (IMPORT_ROOM + 1) // IMPORT_ROOM
    return min(MAX_BUDGET_TOKENS, -(-wanted // ROUNDED_TO) * ROUNDED_TO)


def oversize(entries: Sequence[Entry], sections: Sequence[str]) -> str | None:
    """Return why no playbook can hold these entries, and the remedy; None: one can."""
    tokens, size = needed_tokens(entries, sections), stored_bytes(entries)
    remedy = "import fewer entries, or several playbooks"
    if tokens > MAX_BUDGET_TOKENS:
        return f"{tokens:,} tokens of entries: a playbook holds at most {MAX_BUDGET_TOKENS:,}; {remedy}"
    if size > ENTRIES_BYTES:
        return f"{size:,} bytes of entries: the record of a version holds at most {ENTRIES_BYTES:,}; {remedy}"
    return None


def stored_bytes(entries: Sequence[Entry]) -> int:
    """Return about how many bytes entries take in a record, without evidence and names."""
    texts = (text for entry in entries for text in (entry.id, entry.section, entry.content))
    return ENTRY_BYTES * len(entries) + sum(len(text.encode(errors="replace")) for text in texts)


def _names_bytes(entries: Iterable[Entry]) -> dict[str, int]:
    return {entry.id: sum(len(name.encode(errors="replace")) for name in entry.sources) for entry in entries}


def needed_tokens(entries: Sequence[Entry], sections: Sequence[str]) -> int:
    """Return the smallest token budget that holds these entries."""
    shown = [entry for entry in entries if entry.is_active]
    proposed = [entry for entry in entries if not entry.is_active]
    sizes = [sum(tokens_by_entry(part, sections).values()) for part in (shown, proposed)]
    return max(sizes[0], PROPOSED_SHARE * sizes[1])


# ---- size in tokens


def entry_tokens(entry: Entry) -> int:
    """Return the approximate tokens of an entry's line without its header; they count against a token budget."""
    return -(-(len(entry.id) + len(entry.content) + LAYOUT) // CHARS_PER_TOKEN)


def tokens_by_entry(entries: Iterable[Entry], sections: Iterable[str]) -> dict[str, int]:
    """Return about how many tokens each entry takes in a prompt, by id.

    A section's oldest entry takes the room of its header, too, but for headers of ``sections``: these stand there
    without entries.
    """
    headed, tokens = set(sections), dict[str, int]()
    for entry in sorted(entries, key=lambda entry: (entry.created_version, entry.id)):
        tokens[entry.id] = entry_tokens(entry)
        if entry.section not in headed:
            headed.add(entry.section)
            tokens[entry.id] += -(-(len(entry.section) + HEADER) // CHARS_PER_TOKEN)
    return tokens


def shown_tokens(playbook: Playbook) -> dict[str, int]:
    """Return about how many tokens each entry that agents are shown takes of the token budget, by id."""
    return tokens_by_entry((entry for entry in playbook.entries if entry.is_active), playbook.sections)


# ---- what is evicted


def evictions(
    entries: Sequence[Entry],
    budget_tokens: int,
    before: Sequence[Entry] | None = None,
    sections: Sequence[str] = ACE_SECTIONS,
    parts: Parts = UNBOUNDED,
) -> tuple[str, ...]:
    """Return whom to evict so that the rest fits budget and record; ``before`` are the entries of the version before.

    Headers count, but those of ``sections``, the playbook's own. The entry that begins a section brings its header.

    First goes what the fewest sources support; of that what a model finds in the lessons of the fewest others, then
    the lowest balance of counters, or of words where several sources teach, then least evidence, then oldest. A
    source that alone supports more of the room than its part gives way first, and its new entries make room among its
    own. What a person stands behind goes last, and only where such entries alone exceed the budget.

    Proposed entries have a share of their own in addition to the budget: agents do not read them, and a full playbook
    would learn nothing new if it had to make room for them at once. There the sources that have most of the room make
    some, of tokens and of the names of those who support these entries. A full record is first short of room for what
    they have beyond that share of it.
    """
    was_shown = [entry for entry in (entries if before is None else before) if entry.is_active]
    was, out = tokens_by_entry(was_shown, sections), dict[str, None]()
    several = len(parts) > 1
    # Again, because the header of an entry that goes counts for the next one of its section then.
    while True:
        left = [entry for entry in entries if entry.id not in out]
        shown = [entry for entry in left if entry.is_active]
        proposed = [entry for entry in left if not entry.is_active]
        sizes, waiting = (tokens_by_entry(part, sections) for part in (shown, proposed))
        gone = (
            *_excess(shown, sizes, was, budget_tokens, parts),
            *_crowded_out(proposed, waiting, budget_tokens // PROPOSED_SHARE, several=several),
            *_crowded_out(proposed, _names_bytes(proposed), NAMES_BYTES, several=several),
        )
        if not gone and stored_bytes(left) <= ENTRIES_BYTES:
            return tuple(out)
        if not gone:
            # Short entries, and letters of several bytes, fill a record with fewer tokens than others.
            less = min(budget_tokens, sum(sizes.values()) + sum(waiting.values())) * 9 // 10
            size = {entry.id: stored_bytes([entry]) for entry in proposed}
            candidates = dict.fromkeys(
                (
                    *_crowded_out(proposed, size, ENTRIES_BYTES // (PROPOSED_SHARE + 1), several=several),
                    *_excess(shown, sizes, was, less, parts),
                    *_crowded_out(proposed, waiting, 0, several=several),
                )
            )
            gone = tuple(_beyond_record(left, candidates))
        out |= dict.fromkeys(gone)


def _beyond_record(entries: Sequence[Entry], candidates: Iterable[str]) -> Iterator[str]:
    """Yield who goes, in turn, until the rest fits the record; what a person stands behind goes last."""
    by_id = {entry.id: entry for entry in entries}
    excess = stored_bytes(entries) - ENTRIES_BYTES
    for entry_id in sorted(candidates, key=lambda entry_id: by_id[entry_id].by_hand):
        if excess <= 0:
            return
        excess -= stored_bytes([by_id[entry_id]])
        yield entry_id


def _excess(
    entries: Sequence[Entry],
    sizes: Mapping[str, int],
    before: Mapping[str, int],
    budget_tokens: int,
    parts: Parts,
) -> tuple[str, ...]:
    """Return which shown entries go, in turn; ``sizes`` and ``before``, of the version before, are in tokens.

    The source that exceeds its part most makes room first. A source that brings something makes as much room among
    what it alone supports, as far as that was there before. Nor does what it brings take the room of a source that
    has less of it.
    """
    excess = sum(sizes.values()) - budget_tokens
    if excess <= 0:
        return ()
    owners = {entry.id: _owner(entry) for entry in entries}
    room, brought = Counter[str](), Counter[str]()
    queues: dict[str, deque[Entry]] = defaultdict(deque)
    several = len(parts) > 1
    order = sorted(
        entries,
        key=lambda entry: (
            entry.by_hand,
            len(supporters(entry)),
            len({*entry.recognised}.difference(supporters(entry))),
            _use(entry, several=several),
        ),
    )
    for entry in order:
        if owner := owners[entry.id]:
            room[owner] += sizes[entry.id]
            brought[owner] += max(0, sizes[entry.id] - before.get(entry.id, 0))
            queues[owner].append(entry)
    debts = {owner: min(tokens, room[owner] - tokens) for owner, tokens in brought.items() if tokens}
    left, out = deque(order), dict[str, None]()
    while excess > 0:
        bounded = room if several else ()
        over = {source: room[source] - _part_of(source, parts) * budget_tokens for source in bounded}
        payer = _largest(over) or _largest(debts)
        if not payer:
            owner, payer = owners[_next(left, out).id], _largest({source: room[source] for source in debts})
            payer = payer if owner and room[payer] > room[owner] else ""
        entry = _next(queues[payer] if payer else left, out)
        tokens, owner = sizes[entry.id], owners[entry.id]
        excess -= tokens
        room[owner] -= tokens
        if owner in debts:
            debts[owner] -= tokens
        out[entry.id] = None
    return tuple(out)


def _part_of(source: str, parts: Parts) -> Fraction:
    """Return a source's part of the room: of the reflections, or an equal one: no flood of others makes it less."""
    return max(parts.get(source, Fraction(0)), Fraction(1, len(parts)))


def _largest(tokens: Mapping[str, int | Fraction]) -> str:
    """Return the source with most tokens, if it has any."""
    having = [source for source, count in tokens.items() if count > 0]
    return max(having, key=lambda source: (tokens[source], source), default="")


def _next(queue: deque[Entry], out: Container[str]) -> Entry:
    while queue[0].id in out:
        queue.popleft()
    return queue[0]


def _owner(entry: Entry) -> str:
    """Return the only source that supports an entry; nothing if there are several, or a person stands behind it."""
    first, *others = supporters(entry)
    return "" if others or entry.by_hand else first


def _crowded_out(
    entries: Sequence[Entry], sizes: Mapping[str, int], budget_tokens: int, *, several: bool
) -> tuple[str, ...]:
    """Return which proposed entries go, in turn, so that each source has its share of the room.

    An entry takes room from each of its sources in equal parts, and the one that has least of it decides: who fills
    the room cannot let an entry of others pay by supporting it, too. Of equals goes the entry that the fewest sources
    support, then the least useful. Entries without a source are those of one, which pays for no proven one.
    """
    excess = sum(sizes.values()) - budget_tokens
    if excess <= 0:
        return ()
    parts = {
        entry.id: dict.fromkeys(sources, Fraction(sizes[entry.id], len(sources)))
        for entry in entries
        for sources in (supporters(entry),)
    }
    room: dict[str, Fraction] = defaultdict(Fraction)
    for source, tokens in chain.from_iterable(map(dict.items, parts.values())):
        room[source] += tokens
    left = sorted(entries, key=lambda entry: _use(entry, several=several))
    out: list[str] = []
    while excess > 0:
        # In the order of `left` where all of this is equal.
        ranks = [(-min(map(room.__getitem__, parts[entry.id])), len(parts[entry.id])) for entry in left]
        entry = left.pop(ranks.index(min(ranks)))
        for source, tokens in parts[entry.id].items():
            room[source] -= tokens
        excess -= sizes[entry.id]
        out.append(entry.id)
    return tuple(out)


def _use(entry: Entry, *, several: bool) -> tuple[int | str, ...]:
    """Return how useful an entry is."""
    evidence = entry.evidence_count if entry.is_active else len(entry.support)
    return balance(entry, several=several), evidence, entry.updated_version, entry.id


def has_several(playbook: Playbook) -> bool:
    """Return whether several sources teach a playbook, and each has one word on an entry; in a lab all tags count."""
    return playbook.trust != "lab" and len(playbook.taught_by) > 1


def balance(entry: Entry, *, several: bool) -> int:
    """Return how much more an entry helped than harmed: of ``several`` sources by their words, else by counters."""
    if not several:
        return entry.helpful - entry.harmful
    return len(counting(entry.helped, entry)) - len(counting(entry.harmed, entry))
