"""Tags and echoes of agents that read another line of the playbook."""

import pytest

from combee.core.playbook.lines import as_seen_on, shown_to
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


def test_what_is_said_to_agents_of_a_playbook_itself_is_as_it_was() -> None:
    assert shown_to(ON_NAME, ON_NAME.entries) == Shown(version=9, entry_ids=tuple(tag.id for tag in TAGS))
