"""Which reflections a rule means."""

import pytest

from combee.core.replaying.selection import Selection
from combee_schemas.base import Source
from combee_schemas.reflection import Reflection

LESSON = Reflection(
    reflection_id="r-1",
    trace_id="t-1",
    playbook="p",
    key_insight="Ask for the ORDER number first.",
    source=Source(name="shop"),
)
UNNAMED = LESSON.model_copy(update={"source": None, "reflection_id": "r-2", "trace_id": None})
RECORD = Reflection(reflection_id="r-3", playbook="p", side_info={"Feedback": "no order number"})


@pytest.mark.parametrize(
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
    assert tuple(map(selection.matches, (LESSON, UNNAMED, RECORD))) == meant


@pytest.mark.parametrize("rule", ["", "shop", "source:", "id:", "text:  ", "colour:red"])
def test_anything_else_is_refused_with_what_is_known(rule: str) -> None:
    with pytest.raises(ValueError, match=r"source:NAME, id:ID .* or text:WORDS"):
        Selection.parse(rule)
