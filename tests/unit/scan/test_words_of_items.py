"""Operations that name an item for its words, up the tree to the update."""

from collections.abc import Mapping
from typing import Any

import pytest

from combee_schemas.model import Prompt
from support.models import ScriptedModel, is_combine, items
from support.scanned import contents, covered, learned, reflections


def by_number(prompt: Prompt) -> Mapping[str, Any]:
    """Answer with an operation per item, in the item's words."""
    if prompt.reply_name == "check":
        return {"covered": [], "lost": []}
    added = {"type": "ADD", "section": "OTHERS", "entry_ids": []}
    numbers = [item["n"] for item in items(prompt)]
    operations = [{**added, "content": f"as item {n}", "sources": [n]} for n in numbers]
    return {"operations": operations, "dropped": [], "known": []}


async def test_a_group_and_a_combine_may_name_an_item_for_its_words() -> None:
    texts = sorted(f"Smile at every customer who comes in. Nod {n} times." for n in range(4))
    model = ScriptedModel(by_number)
    found = await learned(model, reflections(*texts), groups=2)
    assert contents(found) == texts
    assert any(map(is_combine, model.prompts))
    assert {operation.evidence for operation in found.operations} == {(f"r-{n}",) for n in range(4)}


@pytest.mark.parametrize("fields", [{"correct_approach": "Nod."}, {"side_info": {"feedback": "Nod."}}])
async def test_an_item_without_an_insight_is_named_for_its_other_words(fields: dict[str, Any]) -> None:
    found = await learned(by_number, reflections("", **fields), groups=1)
    assert contents(found) == ["Nod."]
    assert found.reason == ""
    assert found.seen[0].covered == "words"


async def test_an_operation_as_an_item_that_there_is_not_is_none_and_the_check_carries_the_lesson() -> None:
    def beyond(_: Prompt) -> Mapping[str, Any]:
        added = {"type": "ADD", "section": "OTHERS", "entry_ids": [], "content": "as item 9", "sources": [1]}
        return {"operations": [added], "dropped": [], "known": []}

    found = await learned(beyond, reflections("Smile at every customer who comes in."), groups=1)
    assert contents(found) == ["Smile at every customer who comes in."]
    assert (found.status, found.reason, covered(found)) == ("ok", "", {"r-0": "carried"})
