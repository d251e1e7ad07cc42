"""When a playbook is consolidated without anybody asking, and which entries are asked about; pure.

Code alone merges only the same lesson (`combee.core.text.similarity.lessons`). What is merely alike
or mostly harmful goes to the model, a cluster at a time, and only what it answers about one cluster is applied.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from combee.core.playbook.budget import budget_of, entry_tokens, shown_tokens
from combee.core.playbook.trust import OPEN, Rules
from combee.core.text.figures import conflicting
from combee.core.text.similarity.overlap import ALIKE, Overlap
from combee_schemas.batch import Cluster
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import Operation, OperationKind

MOST_IN_CLUSTER = 8
"""More than so many that are alike are a list (item 1, item 2 …), asked about in parts."""
HARMFUL_FROM = 3
"""Runs that found an entry harmful, before it is proposed for removal."""
HARMFUL_TIMES = 2
"""An entry is mostly harmful if this many times more runs found it harmful than helpful."""
RARE = 12
"""Pairs are looked for among entries that share a word which at most so many have, or a twentieth of all."""


GROWN = 0.1
"""Of the token budget: entries added since the last consolidation, before there is another one by itself.

Whatever the last one found: it is asked again only about a playbook that has got something new.
"""


def has_grown(playbook: Playbook, above: float, configured_tokens: int) -> bool:
    """Return whether a playbook is to be consolidated by itself; ``above`` is a share of its budget, 0 for never."""
    if not above or not configured_tokens or playbook.holds != "entries":
        return False
    budget_tokens = budget_of(playbook, configured_tokens)
    tokens = shown_tokens(playbook)
    added = (
        tokens.get(entry.id, 0)
        for entry in playbook.entries
        if entry.created_version > playbook.consolidated_version
    )
    return sum(tokens.values()) / budget_tokens >= above and sum(added) >= GROWN * budget_tokens


def mostly_harmful(entry: Entry, rules: Rules = OPEN) -> bool:
    """Return whether runs, as many as a removal needs, found an entry harmful far more often than helpful."""
    is_harmful = entry.harmful >= HARMFUL_FROM and entry.harmful > HARMFUL_TIMES * entry.helpful
    return is_harmful and rules.may_be_removed_for_harm(entry)


def clusters(
    entries: Sequence[Entry],
    budget_tokens: int,
    near: Mapping[tuple[str, str], float] | None = None,
    rules: Rules = OPEN,
) -> tuple[Cluster, ...]:
    """Return what a consolidation asks about, as far as it fits ``budget_tokens``; the most alike first.

    ``near`` adds pairs found by other means (ids in order), and how much they are alike.
    """
    # No model's word changes what a person stands behind.
    entries = [entry for entry in entries if not entry.by_hand]
    harmful = [
        Cluster(why="harmful", entry_ids=(entry.id,)) for entry in entries if mostly_harmful(entry, rules)
    ]
    taken = {entry_id for cluster in harmful for entry_id in cluster.entry_ids}
    rest = [entry for entry in entries if entry.id not in taken]
    sizes = {entry.id: entry_tokens(entry) for entry in entries}
    kept: list[Cluster] = []
    for cluster in (*harmful, *_alike(rest, near or {})):
        budget_tokens -= sum(sizes[entry_id] for entry_id in cluster.entry_ids)
        if budget_tokens < 0:
            break
        kept.append(cluster)
    return tuple(kept)


def _alike(entries: Sequence[Entry], near: Mapping[tuple[str, str], float]) -> Iterator[Cluster]:
    """Yield entries that are alike, the most alike pair's first; in a cluster everyone is like everyone.

    Entries with other figures are not alike: no answer may merge them.
    """
    place = {entry.id: n for n, entry in enumerate(entries)}
    by_words = _pairs(entries)
    pairs = {
        (first, second): max(by_words.get((first, second), 0.0), near.get((first, second), 0.0))
        for first, second in sorted({*by_words, *near})
        if first in place
        and second in place
        and not conflicting(entries[place[first]].content, entries[place[second]].content)
    }
    groups: dict[frozenset[str], None] = {}
    of: dict[str, frozenset[str]] = {}
    for (first, second), _ in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0])):
        one, other = (of.get(entry_id, frozenset({entry_id})) for entry_id in (first, second))
        joined = one | other
        every = all(pair in pairs for pair in combinations(sorted(joined), 2))
        if one != other and len(joined) <= MOST_IN_CLUSTER and every:
            for group in (one, other):
                groups.pop(group, None)
            groups[joined] = None
            of |= dict.fromkeys(joined, joined)
    for group in groups:
        score, pair = max((pairs[pair], pair) for pair in combinations(sorted(group), 2))
        yield Cluster(
            why="alike",
            entry_ids=tuple(sorted(group, key=place.__getitem__)),
            score=round(score, 4),
            by="words" if by_words.get(pair) == score else "meaning",
        )


def _pairs(entries: Sequence[Entry]) -> dict[tuple[str, str], float]:
    """Return pairs that are alike, ids in order. Entries without a rare word in common are not compared."""
    return Overlap(entries).alike(ALIKE, most=max(RARE, len(entries) // 20))


def within(operations: Iterable[Operation], asked: Sequence[Cluster]) -> tuple[Operation, ...]:
    """Return the operations that a consolidation may make: on the entries of one cluster, nothing new.

    What is alike is merged or reworded, never removed: removing needs the verdict of runs.
    """
    return tuple(operation for operation in operations if any(_fits(operation, cluster) for cluster in asked))


def _fits(operation: Operation, cluster: Cluster) -> bool:
    if not operation.entry_ids or not set(operation.entry_ids) <= set(cluster.entry_ids):
        return False
    allowed = {OperationKind.MERGE, OperationKind.UPDATE}
    return operation.kind in (
        allowed if cluster.why == "alike" else {OperationKind.REMOVE, OperationKind.UPDATE}
    )
