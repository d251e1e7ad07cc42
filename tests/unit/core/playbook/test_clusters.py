"""Which entries a consolidation asks about, and what its answer may do."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.results.clusters import MOST_IN_CLUSTER, clusters, has_grown, mostly_harmful, within
from combee.core.playbook.trust import Rules
from combee.core.playbook.versions import empty
from combee_schemas.base import Source
from combee_schemas.batch import Cluster
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.scan import Operation, OperationKind
from combee_sim.family.family import lessons
from support.playbooks import ADD, after_command, command, learned, seen
from support.playbooks import op as operation_of
from support.rows import each_row

ROOM = 10**6
ALIKE = (
    "Page through all results of the song library until a page is empty, then count the songs.",
    "Before counting songs, page through all the song library's results until an empty page comes.",
)
OTHERS = (
    "Look at an API's documentation before calling it for the first time.",
    "Refund opened parcels less a restocking fee of 15 %.",
    "Compute dates such as yesterday from the current date.",
)


def entries(*contents: str, **fields: int) -> list[Entry]:
    return [
        Entry(id=f"e-{n:05d}", section=ACE_SECTIONS[0], content=content, **fields)
        for n, content in enumerate(contents, 1)
    ]


def ids(found: tuple[Cluster, ...]) -> list[tuple[str, tuple[str, ...]]]:
    return [(cluster.why, cluster.entry_ids) for cluster in found]


@each_row(
    ("helpful", "harmful", "verdict"),
    [(0, 2, False), (0, 3, True), (1, 3, True), (2, 4, False), (2, 5, True), (50, 60, False), (0, 0, False)],
)
def test_an_entry_is_mostly_harmful_when_several_runs_said_so_and_few_the_opposite(
    helpful: int, harmful: int, *, verdict: bool
) -> None:
    (entry,) = entries("x", helpful=helpful, harmful=harmful)
    assert mostly_harmful(entry) is verdict


def test_entries_that_are_alike_make_a_cluster_and_others_none() -> None:
    assert ids(clusters(entries(OTHERS[0], ALIKE[0], *OTHERS[1:], ALIKE[1]), ROOM)) == [
        ("alike", ("e-00002", "e-00005"))
    ]


def test_lessons_of_one_frame_are_not_alike() -> None:
    found = clusters(entries(*lessons()), ROOM)
    assert sum(len(cluster.entry_ids) for cluster in found) <= len(lessons()) // 10


def test_an_entry_that_is_mostly_harmful_is_asked_about_alone_and_first() -> None:
    book = entries(*ALIKE, *OTHERS)
    book[1] = book[1].model_copy(update={"harmful": 5})
    assert ids(clusters(book, ROOM)) == [("harmful", ("e-00002",))]


PAIR, THREE = (Rules(weighs=True, several=True, quorum=quorum) for quorum in (2, 3))


def test_the_tags_of_one_source_take_no_entry_away_that_several_must_change() -> None:
    book = learned(empty("p"), [operation_of(ADD, OTHERS[0], evidence=("r-0",))], [seen("r-0")])
    for number, name in enumerate(("mallory", "mallory", "mallory", "shop")):
        assert clusters(book.entries, ROOM, rules=PAIR) == ()
        source = Source(name=name, proven="secret")
        tagged = seen(f"r-{number + 1}", (book.entries[0].id, "harmful")).model_copy(
            update={"source": source}
        )
        book = learned(book, [], [tagged], trust="public", colluders=1)
    assert ids(clusters(book.entries, ROOM, rules=PAIR)) == [("harmful", (book.entries[0].id,))]
    assert clusters(book.entries, ROOM, rules=THREE) == ()
    revoked = after_command(command("revoke", reflection_ids=("r-4",), rules=("source:shop",)), book)
    assert clusters(revoked.entries, ROOM, rules=PAIR) == ()


def test_what_other_means_found_near_is_alike() -> None:
    near = {("e-00001", "e-00003"): 0.9, ("e-00001", "gone"): 1.0}
    assert ids(clusters(entries(*OTHERS), ROOM, near)) == [("alike", ("e-00001", "e-00003"))]


def test_a_cluster_says_how_alike_its_most_alike_pair_is_and_by_what() -> None:
    book = entries(*ALIKE, *OTHERS)
    (worded,) = clusters(book, ROOM)
    assert worded.by == "words"
    assert 0.4 <= worded.score < 1
    (near,) = clusters(entries(*OTHERS), ROOM, {("e-00001", "e-00003"): 0.912345})
    assert (near.by, near.score) == ("meaning", 0.9123)
    (both,) = clusters(book, ROOM, {("e-00001", "e-00002"): 1.0})
    assert (both.by, both.score) == ("meaning", 1.0)


def test_entries_with_other_figures_are_not_alike_whatever_words_and_embeddings_say() -> None:
    twins = entries(
        "Refund opened parcels less a restocking fee of 15 %.",
        "Refund opened parcels less a restocking fee of 20 %.",
    )
    assert clusters(twins, ROOM, {("e-00001", "e-00002"): 0.99}) == ()


def test_no_more_is_asked_than_fits() -> None:
    book = entries(*ALIKE, *(text.replace("song", "film") for text in ALIKE), *OTHERS)
    assert len(clusters(book, ROOM)) == 2
    assert len(clusters(book, sum(map(entry_tokens, book[:4])) - 1)) == 1
    assert clusters(book, 1) == ()


@given(
    st.lists(st.sampled_from([f"{text} {n}" for text in (*ALIKE, *OTHERS) for n in range(9)]), max_size=40)
)
def test_no_entry_is_in_two_clusters_and_the_same_entries_give_the_same_clusters(contents: list[str]) -> None:
    book = entries(*contents)
    found = clusters(book, ROOM)
    members = [entry_id for cluster in found for entry_id in cluster.entry_ids]
    assert len(members) == len(set(members))
    assert all(2 <= len(cluster.entry_ids) <= MOST_IN_CLUSTER for cluster in found)
    assert found == clusters(book, ROOM)


# ---- what an answer may do

ASKED = (Cluster(why="alike", entry_ids=("a", "b", "c")), Cluster(why="harmful", entry_ids=("h",)))


def op(kind: OperationKind, *entry_ids: str) -> Operation:
    return Operation(kind=kind, content="x", entry_ids=entry_ids)


def test_an_answer_may_merge_and_reword_what_is_alike_and_remove_what_harms() -> None:
    kept = (
        op(OperationKind.MERGE, "a", "c"),
        op(OperationKind.UPDATE, "b"),
        op(OperationKind.REMOVE, "h"),
        op(OperationKind.UPDATE, "h"),
    )
    assert within(kept, ASKED) == kept


@pytest.mark.parametrize(
    "operation",
    [op(OperationKind.ADD), op(OperationKind.REMOVE, "a"), op(OperationKind.MERGE, "a", "h"),
     op(OperationKind.MERGE, "a", "other"), op(OperationKind.UPDATE, "other")],
    ids=str,
)  # fmt: skip
def test_an_answer_adds_nothing_and_touches_no_entry_it_was_not_asked_about(operation: Operation) -> None:
    assert within([operation], ASKED) == ()


def test_everyone_in_a_cluster_is_like_everyone() -> None:
    chain = [" ".join(f"word{'abcdefghijklmnop'[k]}" for k in range(n, n + 6)) for n in range(8)]
    for cluster in clusters(entries(*chain), ROOM):
        numbers = [int(entry_id[2:]) for entry_id in cluster.entry_ids]
        assert all(abs(one - other) <= 2 for one, other in combinations(numbers, 2))


# ---- without anybody asking

BUDGET = 1_000
LARGE = "word " * 159
"""Some 200 tokens."""


def grown_by(count: int, since: int, **fields: object) -> Playbook:
    """Return a playbook with an entry per version from 1 on, consolidated last in version ``since``."""
    added = [
        Entry(id=f"e-{n:05d}", section=ACE_SECTIONS[0], content=LARGE, created_version=n)
        for n in range(1, count + 1)
    ]
    known = {"name": "p", "version": count, "entries": tuple(added), "consolidated_version": since}
    return Playbook(**(known | fields))


@each_row(
    ("count", "since", "above", "expected"),
    [
        (3, 0, 0.5, True),
        (2, 0, 0.5, False),
        (3, 3, 0.5, False),
        (4, 3, 0.5, True),
        (5, 5, 0.01, False),
        (3, 0, 0.0, False),
    ],
    ids=["above the share", "below it", "nothing new", "something new", "however far above", "off"],
)
def test_a_playbook_is_consolidated_by_itself_above_a_share_of_its_budget_once_per_growth(
    count: int, since: int, above: float, *, expected: bool
) -> None:
    assert has_grown(grown_by(count, since), above, BUDGET) is expected


def test_what_agents_are_not_shown_and_what_is_no_entry_does_not_count() -> None:
    book = grown_by(3, 0)
    proposed = tuple(entry.model_copy(update={"state": "proposed"}) for entry in book.entries)
    assert not has_grown(book.model_copy(update={"entries": proposed}), 0.5, BUDGET)
    assert not has_grown(book.model_copy(update={"holds": "components"}), 0.5, BUDGET)
    assert not has_grown(book, 0.5, 0), "without a budget there is no share"
