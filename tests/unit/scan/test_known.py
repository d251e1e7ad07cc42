# ---- the words of items


async def test_a_group_and_a_combine_may_name_an_item_for_its_words() -> None:
    def by_number(prompt: Prompt) -> Mapping[str, Any]:
        if prompt.reply_name == "check":
            return {"covered": [], "lost": []}
        numbers = [item["n"] for item in items(prompt)]
        operations = [
            {"type": "ADD", "section": "OTHERS", "content": f"as item {n}", "entry_ids": [], "sources": [n]}
            for n in numbers
        ]
        return {"operations": operations, "dropped": [], "known": []}

    texts = sorted(f"{OTHER} Nod {n} times." for n in range(4))
    model = ScriptedModel(by_number)
    found = await learned(model, reflections(*texts), groups=2)
    assert contents(found) == texts
    assert any(map(is_combine, model.prompts))
    assert {operation.evidence for operation in found.operations} == {(f"r-{n}",) for n in range(4)}
