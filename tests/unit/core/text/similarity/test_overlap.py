"""Which entries share enough of their words."""

from collections import Counter
from itertools import chain, combinations

from hypothesis import example, given
from hypothesis import strategies as st

from combee.core.text.similarity.overlap import Overlap, said_words
from combee.core.text.similarity.relevance import rarity
from combee_schemas.playbook import ACE_SECTIONS, Entry

WORDS = [first + second for first in "bdfgk" for second in ("alu", "emo", "iru", "ono")]
CONTENTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=25)


def by_definition(entries: list[Entry], least: float, most: int) -> dict[tuple[str, str], float]:
    """Compare every pair."""
    words = {entry.id: said_words(entry.content) for entry in entries}
    having = Counter(chain.from_iterable(words.values()))

    def weight(said: frozenset[str]) -> float:
        return sum(rarity(having[word], len(entries)) for word in sorted(said))

    found = {}
    for first, second in combinations(sorted(words), 2):
        both = words[first] & words[second]
        if any(having[word] <= most for word in both):
            share = weight(both) / weight(words[first] | words[second])
            if share >= least:
                found[first, second] = share
    return found


@given(CONTENTS, st.floats(0.05, 1.0), st.integers(1, 12))
@example(["balu bemo", "balu bemo", "balu"], 1.0, 12)
@example([" ".join(WORDS[:n]) for n in range(20)] * 2, 1.0, 12)
@example(["balu bemo biru", "balu bemo biru", "balu demo"], 0.4, 1)
def test_the_pairs_are_those_of_comparing_all(contents: list[str], least: float, most: int) -> None:
    entries = [
        Entry(id=f"e-{n:05d}", section=ACE_SECTIONS[0], content=content) for n, content in enumerate(contents)
    ]
    assert Overlap(entries).alike(least, most=most) == by_definition(entries, least, most)
