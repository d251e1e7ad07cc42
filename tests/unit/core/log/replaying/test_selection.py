"""Which reflections a rule means."""

import pytest

from combee.core.log.replaying.selection import Selection
from combee_schemas.base import Source
from combee_schemas.reflection import Reflection
from support.rows import each_row

LESSON = Reflection(
    reflection_id="r-1",
    trace_id="t-1",
    playbook="p",
    key_insight="Ask for the ORDER number first.",
    source=Source(name="shop"),
)
UNNAMED = LESSON.model_copy(update={"source": None, "reflection_id": "r-2", "trace_id": None})
RECORD = Reflection(reflection_id="r-3", playbook="p", side_info={"Feedback": "no order number"})


@each_row(
    ("rule", "meant"),
    [
        ("source:shop", (True, False, False)),
        ("source:unproven", (False, True, True)),
        ("id:r-1", (True, False, False)),
        ("id:t-1", (True, False, False)),
        ("text:order number", (True, True, True)),
        ("text:ask for the", (True, True, False)),
        ("source:order", (False, False, False)),
    ],
)
def test_a_rule_means_a_source_an_id_or_words(rule: str, meant: tuple[bool, ...]) -> None:
    selection = Selection.parse(rule)
    assert tuple(selection.matches(each, 0) for each in (LESSON, UNNAMED, RECORD)) == meant


def test_a_rule_about_a_source_means_the_name_under_which_it_counts() -> None:
    shop, unproven = Selection.parse("source:shop"), Selection.parse("source:unproven")
    # A producer that claims a name can only have its own records taken back by it.
    assert (shop.matches(LESSON, 0, "proven"), unproven.matches(LESSON, 0, "proven")) == (True, True)
    proven = LESSON.model_copy(update={"source": Source(name="shop", proven="key")})
    assert (shop.matches(proven, 0, "proven"), unproven.matches(proven, 0, "proven")) == (True, False)


@each_row("rule", ["", "shop", "source:", "id:", "text:  ", "colour:red"])
def test_anything_else_is_refused_with_what_is_known(rule: str) -> None:
    with pytest.raises(ValueError, match=r"source:NAME, id:ID .* text:WORDS, since:TIME"):
        Selection.parse(rule)


DAY = 86_400_000


@each_row(
    ("rule", "meant"),
    [
        ("since:1970-01-02", (False, True, True)),
        ("until:1970-01-02", (True, False, False)),
        ("between:1970-01-02/1970-01-03", (False, True, False)),
        ("between:1970-01-02T00:00+00:00/1970-01-03T01:00", (False, True, True)),
        ("since:1970-01-02T02:00:00+02:00", (False, True, True)),
    ],
)
def test_a_time_range_means_what_came_in_it_without_its_end(rule: str, meant: tuple[bool, ...]) -> None:
    selection = Selection.parse(rule)
    assert tuple(selection.matches(LESSON, at_ms) for at_ms in (DAY - 1, DAY, 2 * DAY)) == meant
    assert str(selection) == rule


def test_a_time_that_is_none_and_a_range_that_ends_before_it_begins_are_refused() -> None:
    with pytest.raises(ValueError, match="'yesterday' is not a time: write it as 2026-01-31"):
        Selection.parse("since:yesterday")
    with pytest.raises(ValueError, match="'86400' is not a time"):
        Selection.parse("since:86400")
    with pytest.raises(ValueError, match="its end is not after its beginning"):
        Selection.parse("between:2026-01-02/2026-01-01")


def test_only_a_named_source_means_what_is_still_to_come() -> None:
    rules = ("source:shop", "source:unproven", "id:r-1", "text:order", "since:2026-01-01")
    assert [Selection.parse(rule).is_open_ended for rule in rules] == [True, False, False, False, False]
