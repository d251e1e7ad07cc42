"""Tags and echoes of agents that read another line of the playbook."""

import pytest

from combee.core.playbook import shown
from combee.core.playbook.shown import as_seen_on, content_digest, only, shown_to, with_digests
from combee_schemas.base import Shown
from combee_schemas.plan import Branch
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag, Reflection

NAME, LINE = "support/refunds", "support/refunds@short"
SAME, CHANGED, OTHER = (Entry(id=f"calc-0000{n}", section="S", content=f"text {n}") for n in range(1, 4))
ON_NAME = Playbook(name=NAME, version=9, entries=(SAME, CHANGED, OTHER))
ON_LINE = Playbook(
    name=LINE,
    version=4,
    branch=Branch(of=NAME, version=7, sequence=5),
    entries=(
        SAME.model_copy(update={"helpful": 3, "updated_version": 4}),
        CHANGED.model_copy(update={"content": "another text"}),
        OTHER.model_copy(update={"content": "learned here under the same id"}),
    ),
)
TAGS = tuple(BulletTag(id=entry.id, tag="helpful") for entry in (SAME, CHANGED, OTHER))


def said(shown: Shown | None) -> Reflection:
    return Reflection(reflection_id="r", playbook=NAME, key_insight="x", bullet_tags=TAGS, shown=shown)


def test_on_the_line_that_its_agent_read_all_of_it_counts() -> None:
    for book in (ON_NAME, ON_LINE):
        reflection = said(shown_to(book, book.entries))
        assert as_seen_on(book, reflection) is reflection


def test_on_another_line_what_says_the_same_there_counts() -> None:
    seen = as_seen_on(ON_NAME, said(shown_to(ON_LINE, ON_LINE.entries)))
    assert seen.bullet_tags == TAGS[:1]
    assert seen.shown == Shown(version=ON_NAME.version, entry_ids=(SAME.id,))


@pytest.mark.parametrize("shown", [None, Shown(version=9, entry_ids=(SAME.id, OTHER.id))])
def test_on_another_line_nothing_counts_of_an_agent_that_does_not_say_what_it_read(
    shown: Shown | None,
) -> None:
    seen = as_seen_on(ON_LINE, said(shown))
    assert seen.bullet_tags == ()
    assert seen.shown is None or seen.shown.entry_ids == ()


def test_on_a_branch_what_says_the_same_counts_of_an_agent_that_read_the_playbook() -> None:
    seen = as_seen_on(ON_LINE, said(shown_to(ON_NAME, ON_NAME.entries)))
    assert seen.bullet_tags == TAGS[:1]
    assert seen.shown == Shown(version=ON_LINE.version, entry_ids=(SAME.id,))


def test_a_line_that_has_ended_is_named_too() -> None:
    ended = ON_LINE.model_copy(update={"branch": None})
    assert shown_to(ended, ended.entries).line == LINE


def test_what_agents_of_a_playbook_were_shown_names_no_line() -> None:
    shown = shown_to(ON_NAME, ON_NAME.entries)
    assert (shown.version, shown.line, shown.entry_ids) == (9, "", tuple(tag.id for tag in TAGS))


def test_a_digest_takes_few_bytes_of_a_record_and_is_computed_once() -> None:
    assert {len(each) for each in shown_to(ON_NAME, ON_NAME.entries).digests} == {8}
    entry = Entry(id="misc-00001", section="S", content="nobody has said this")
    before = shown._digest.cache_info().misses
    for _ in range(3):
        content_digest(entry)
    assert shown._digest.cache_info().misses == before + 1


def test_of_fewer_entries_their_digests_are_kept() -> None:
    shown = shown_to(ON_NAME, ON_NAME.entries)
    assert only(shown, frozenset({CHANGED.id, OTHER.id})) == shown_to(ON_NAME, (CHANGED, OTHER))


def test_of_a_client_that_gives_no_digests_what_has_not_changed_since_gets_them() -> None:
    book = ON_NAME.model_copy(
        update={"entries": (SAME, CHANGED.model_copy(update={"updated_version": 9}), OTHER)}
    )
    named = Shown(version=8, entry_ids=(SAME.id, CHANGED.id, "gone"))
    assert with_digests(named, book).digests == (content_digest(SAME), "", "")
    given = shown_to(ON_LINE, ON_LINE.entries)
    assert with_digests(given, book) is given
    assert with_digests(named.model_copy(update={"version": 10}), book).digests == ()
