"""Whom a full playbook lets go: a flood of one source's lessons pushes out its own, not what others support."""

from collections.abc import Sequence
from fractions import Fraction
from time import process_time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from combee.core.names.sources import UNPROVEN
from combee.core.playbook import versions
from combee.core.playbook.budget import NAMES_BYTES, entry_tokens, evictions
from combee.core.playbook.lineage.recomputing import Recomputation
from combee.core.playbook.retention import reflection_effects
from combee.core.playbook.versions import empty
from combee_schemas.base import Source
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.scan import Operation, Seen, Update
from support.playbooks import ADD, PLENTY, REMOVE, changes, entry, op, update_of
from support.rows import each_row

SIZE = entry_tokens(entry("calc-00001", "x" * 100))
"""Tokens of one of these entries."""


def line(n: int, *sources: str, **fields: Any) -> Entry:
    return entry(f"calc-{n:05d}", "x" * 100, sources=sources, **fields)


def ids(*numbers: int) -> tuple[str, ...]:
    return tuple(f"calc-{n:05d}" for n in numbers)


def seen(reflection_id: str, source: str) -> Seen:
    """Return a reflection of a source that proves its name; one without a name proves none."""
    name = Source(name=source, proven="secret") if source else None
    return Seen(reflection_id=reflection_id, offset=int(reflection_id[2:]), source=name)


def update(current: Playbook, taught: Sequence[tuple[str, Sequence[str]]], **settings: Any) -> Update:
    """Return a batch of lessons, each taught by these sources."""
    operations: list[Operation] = []
    reflections: list[Seen] = []
    for lesson, sources in taught:
        first = current.through_offset + 1 + len(reflections)
        said = [seen(f"r-{first + n}", source) for n, source in enumerate(sources)]
        operations.append(op(ADD, lesson, evidence=tuple(one.reflection_id for one in said)))
        reflections += said
    return update_of(current, operations, reflections, **settings)


def learned(
    current: Playbook, taught: Sequence[tuple[str, Sequence[str]]], budget: int = PLENTY, **settings: Any
) -> Playbook:
    made = update(current, taught, **settings)
    return versions.after_update(current, made, budget_tokens=budget, now_ms=0)


def lessons(prefix: str, count: int) -> list[str]:
    """Return lessons of about one size, of which no two are alike."""
    return [
        f"{prefix} {word * 12}" for word in ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr")[:count]
    ]


def contents(playbook: Playbook) -> list[str]:
    return [known.content for known in playbook.entries]


def room_of(playbook: Playbook) -> int:
    return sum(map(entry_tokens, playbook.entries))


FLOOD = [f"flood {letter * 3} {letter * 20}" for letter in "abcdefghijklmnopqrstuvwxyz"]


# ---- the order


def test_what_the_fewest_sources_support_goes_first_however_much_evidence_it_has() -> None:
    entries = [
        line(1, "shop", evidence_count=50, helpful=9),
        line(2, "shop", "desk", evidence_count=2),
        line(3, "shop", "desk", "lab", evidence_count=3, harmful=1),
        line(4, "lab", evidence_count=1),
    ]
    assert evictions(entries, 0) == ids(4, 1, 2, 3)


def test_of_equally_many_sources_the_order_is_the_balance_then_the_evidence_then_the_age() -> None:
    entries = [
        line(1, "shop", helpful=1),
        line(2, "shop", evidence_count=2, updated_version=1),
        line(3, "shop", evidence_count=1, updated_version=2),
        line(4, "shop", evidence_count=1, updated_version=1),
        line(5, "shop", helpful=1, harmful=2, evidence_count=9),
    ]
    assert evictions(entries, 0) == ids(5, 4, 3, 2, 1)


@each_row("state", ["active", "proposed"], ids=["shown", "waiting"])
def test_of_several_sources_the_words_make_the_balance_and_of_one_the_counters(state: str) -> None:
    entries = [
        line(
            1, "shop", state=state, helpful=2, harmful=9, helped=("lab", "desk", "till"), harmed=("mallory",)
        ),
        line(2, "shop", state=state, helpful=9, helped=("mallory",)),
        line(3, "shop", state=state, harmful=1, harmed=("desk",)),
    ]
    halves = {"shop": Fraction(1, 2), "lab": Fraction(1, 2)}
    assert evictions(entries, 0, entries, parts=halves) == ids(3, 2, 1)
    assert evictions(entries, 0, entries) == ids(1, 3, 2)


def test_without_proof_there_is_no_source_beside_a_proven_one() -> None:
    entries = [line(1, "lab", UNPROVEN), line(2, "shop", "desk"), line(3, UNPROVEN, evidence_count=3)]
    assert evictions(entries, SIZE) == ids(1, 3)


# ---- one source


ones = st.lists(
    st.builds(
        lambda n, helpful, count, version: line(
            n, "shop", helpful=helpful, evidence_count=count, updated_version=version
        ),
        st.integers(1, 99),
        st.integers(-2, 2),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=12,
    unique_by=lambda known: known.id,
)


@given(ones, st.integers(0, 12), st.integers(0, 12), st.sampled_from([("shop",), (UNPROVEN,), ()]))
def test_within_one_source_balance_evidence_and_age_alone_decide(
    entries: list[Entry], there: int, fit: int, sources: tuple[str, ...]
) -> None:
    entries = [known.model_copy(update={"sources": sources}) for known in entries]
    expected = sorted(
        entries,
        key=lambda e: (e.helpful - e.harmful, e.evidence_count, e.updated_version, e.id),
    )
    out = evictions(entries, fit * SIZE, entries[:there])
    assert out == tuple(e.id for e in expected[: max(0, len(entries) - fit)])


@each_row("source", ["shop", ""], ids=["proven", "nobody proves a source"])
def test_a_source_that_is_alone_goes_on_learning_when_its_subject_changes(source: str) -> None:
    old, new = lessons("refunds", 6), lessons("delivery", 6)
    current = learned(empty("p"), [(lesson, [source]) for lesson in old])
    budget = room_of(current)
    for lesson in new:
        current = learned(current, [(lesson, [source])], budget)
        assert lesson in contents(current)
    assert set(contents(current)) == set(new)


# ---- a flood


@each_row("flooder", ["evil", ""], ids=["proven", "unproven"])
def test_a_flood_pushes_out_nothing_that_two_sources_support(flooder: str) -> None:
    honest = lessons("refunds", 9)
    current = learned(empty("p"), [(lesson, ["shop", "desk"]) for lesson in honest])
    budget = room_of(current)
    for _ in range(3):
        current = learned(current, [(lesson, [flooder] * 3) for lesson in FLOOD], budget)
        assert contents(current) == honest


def test_a_flood_in_one_batch_takes_no_more_room_than_each_other_source_has() -> None:
    """Nine sources of three lessons each; one source brings 26, each said three times."""
    names = [f"s-{n}" for n in range(19)]
    honest = {(name, lesson) for name in names for lesson in lessons(f"of {name}", 3)}
    current = learned(empty("p"), [(lesson, [name]) for name, lesson in sorted(honest)])
    made = learned(current, [(lesson, ["evil"] * 3) for lesson in FLOOD], room_of(current))
    assert sum(known.sources == ("evil",) for known in made.entries) <= 3
    assert {known.sources for known in made.entries} >= {(name,) for name in names}
    again = learned(made, [(lesson[::-1], ["evil"] * 3) for lesson in FLOOD], room_of(current))
    assert sum(known.sources == ("evil",) for known in again.entries) <= 3


def test_a_source_s_new_entries_displace_its_own_before_others() -> None:
    shop, desk = lessons("refunds", 6), lessons("delivery", 3)
    current = learned(empty("p"), [(lesson, ["shop"]) for lesson in shop])
    current = learned(current, [(lesson, ["desk"] * 3) for lesson in desk])
    made = learned(current, [(lesson, ["desk"] * 3) for lesson in lessons("returns", 3)], room_of(current))
    assert set(shop) < set(contents(made))
    assert {known.content for known in made.entries if known.sources == ("desk",)} == set(
        lessons("returns", 3)
    )


def test_batch_after_batch_a_source_grows_no_larger_than_the_most_it_brought_at_once() -> None:
    shop = lessons("refunds", 9)
    current = learned(empty("p"), [(lesson, ["shop"]) for lesson in shop])
    budget = room_of(current)
    for lesson in FLOOD:
        current = learned(current, [(lesson, ["evil"] * 2)], budget)
        assert len(current.entries) >= 9
        assert sum(known.sources == ("evil",) for known in current.entries) == 1


def test_a_source_that_says_its_lesson_again_and_again_is_one_source() -> None:
    current = learned(empty("p"), [("Ask for the order number", ["shop", "desk"])])
    for _ in range(9):
        current = learned(current, [("Pay everything twice", ["evil"] * 5)])
    made = learned(current, [("Pay twice", ["evil"])], entry_tokens(current.entries[0]))
    assert contents(made) == ["Ask for the order number"]


def test_an_entry_loses_no_support_because_newer_names_come() -> None:
    names = [f"s-{n}" for n in range(19)]
    current = learned(empty("p"), [("Ask for the order number", names)])
    (known,) = current.entries
    for _ in range(5):
        current = learned(current, [("Ask for the order number", ["evil"])])
    assert len(current.entries[0].sources) == len(known.sources)


def test_a_new_source_finds_room_among_what_others_alone_say() -> None:
    current = learned(empty("p"), [(lesson, ["shop"]) for lesson in lessons("refunds", 9)])
    made = learned(current, [("Ask for the order number", ["desk", "desk"])], room_of(current))
    assert "Ask for the order number" in contents(made)


def test_who_fills_the_record_with_lessons_that_wait_costs_others_neither_theirs_nor_the_names_behind_them() -> (
    None
):
    """Each of these lessons has the names of nine sources: without them none would ever have a tenth."""
    loud = tuple(f"{n}".rjust(80, "x") for n in range(9))
    waiting = [line(n, *loud, state="proposed") for n in range(800)]
    honest = [line(n, *"abcdefghi", state="proposed") for n in range(800, 810)]
    out = evictions([*waiting, *honest], PLENTY, parts=dict.fromkeys("ab", Fraction(1, 2)))
    left = [one for one in (*waiting, *honest) if one.id not in out]
    assert honest == left[-len(honest) :]
    assert NAMES_BYTES - 2_000 < sum(len(name) for one in left for name in one.sources) <= NAMES_BYTES


def test_who_fills_the_record_with_short_lessons_that_wait_has_no_room_of_what_is_shown() -> None:
    """The lessons are Chinese, which take more bytes than tokens; those that wait take even more."""
    shown = [
        entry(f"misc-{n:05d}", f"{n:04d}{'量' * 38}", sources=tuple("abcde"), section="OTHERS")
        for n in range(1_125)
    ]
    waiting = [
        entry(f"ctx-{n:05d}", "𠀀𠀁𠀂", sources=("xyz"[n % 3],), state="proposed", section=ACE_SECTIONS[5])
        for n in range(1_000)
    ]
    tokens = 16_000
    assert max(sum(map(entry_tokens, shown)), 4 * sum(map(entry_tokens, waiting))) <= tokens
    out = evictions([*shown, *waiting], tokens, shown, parts=dict.fromkeys("abcdexyz", Fraction(1, 8)))
    assert out
    assert {one.id for one in waiting}.issuperset(out)


def test_room_for_the_largest_batch_is_made_in_a_moment() -> None:
    lines = [line(n, f"s-{n % 200}") for n in range(2_000)]
    began = process_time()
    assert len(evictions(lines, 80 * SIZE, lines[:1_000])) == 1_920
    assert process_time() - began < 5


# ---- the same rule everywhere


def test_the_budget_of_a_batch_is_that_of_its_manifest() -> None:
    current = learned(empty("p"), [(lesson, ["shop"]) for lesson in lessons("refunds", 6)])
    budget = room_of(current)
    added = [("Ask for the order number", ["shop"])]
    recorded = learned(current, added, PLENTY, playbook_tokens=budget)
    assert recorded.entries == learned(current, added, 10, playbook_tokens=budget).entries
    assert [kind for kind, _ in changes(recorded)] == ["add", "evict"]


def test_what_comes_back_by_a_revocation_makes_room_by_the_same_rule() -> None:
    """A removal is revoked: its entry is back, and of what one source supports the least useful goes."""
    current = learned(empty("p"), [(lesson, ["shop", "desk"]) for lesson in lessons("refunds", 3)])
    greeting = f"Greet first, {'please ' * 5}"
    current = learned(current, [(greeting, ["lab"] * 4)])
    removed = current.entries[0]
    removal = update(current, [("Removed", ["evil"])], playbook_tokens=room_of(current))
    operations = (op(REMOVE, "", removed.id, evidence=removal.result.operations[0].evidence),)
    removal = removal.model_copy(
        update={"result": removal.result.model_copy(update={"operations": operations})}
    )
    without = versions.after_update(current, removal, budget_tokens=PLENTY, now_ms=0)
    assert removed.content not in contents(without)
    later = update(without, [(removed.content[::-1], ["shop", "desk"])], playbook_tokens=room_of(current))
    full = versions.after_update(without, later, budget_tokens=PLENTY, now_ms=0)
    barred = full.model_copy(update={"revoked": operations[0].evidence})
    book = Recomputation(current, barred, next_id=barred.next_id)
    book.follow(without, removal)
    book.follow(full, later)
    left = book.result(budget_tokens=PLENTY)
    assert removed.content in {known.content for known in left.entries}
    assert greeting not in {known.content for known in left.entries}
    assert set(reflection_effects(versions.drafted(without, later), later, full)) == {
        one.reflection_id for one in later.result.seen
    }
