"""Playbooks of components: a text changes as a whole or not at all."""

from typing import Any

import pytest

from combee.core import commands
from combee.core.formats.files import (
    carried_over,
    detect,
    held_by,
    natural_form,
    read_playbook,
    says_the_same,
    write_playbook,
)
from combee.core.formats.intake import read_line
from combee.core.playbook import executing
from combee.core.playbook.versions import after_update, edited, empty
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind, Seen
from support.playbooks import update_of
from support.rows import each_row
from support.teaching import rejected

ADD, UPDATE, MERGE, REMOVE = OperationKind
PLENTY = 10_000
EMPTY = empty("p").model_copy(update={"holds": "components"})
TEXT = "Answer briefly.\n\n- one\n  - two\n\n## not a header\n[id-00001] no entry\n```\ncode\n```"


def part(name: str, content: str, **fields: Any) -> Entry:
    return Entry(**{"id": f"{name}-1", "section": name, "content": content, **fields})


BASE = empty("p").model_copy(
    update={
        "version": 4,
        "holds": "components",
        "sections": ("plan", "tone"),
        "entries": (part("plan", "Think first."), part("tone", "Be kind.")),
        "next_id": 7,
    }
)


def op(
    kind: OperationKind, content: str, *ids: str, evidence: tuple[str, ...] = ("r",), section: str = "plan"
) -> Operation:
    return Operation(kind=kind, section=section, content=content, entry_ids=ids, evidence=evidence)


def after(
    *operations: Operation, base: Playbook = BASE, budget: int = PLENTY
) -> tuple[dict[str, str], list[str]]:
    """Return the texts by component, and the kinds of the changes."""
    draft, _, entries = edited(base, operations, budget_tokens=budget)
    return {one.section: one.content for one in entries}, [change.kind for change in draft.changes]


def test_an_update_replaces_one_text_and_leaves_the_others() -> None:
    assert after(op(UPDATE, TEXT, "plan-1")) == ({"plan": TEXT, "tone": "Be kind."}, ["update"])


def test_a_text_that_says_what_another_component_says_does_not_swallow_it() -> None:
    texts, _ = after(op(UPDATE, "Be kind.", "plan-1"))
    assert texts == {"plan": "Be kind.", "tone": "Be kind."}


def test_a_text_in_nearly_the_same_words_is_taken_as_it_is() -> None:
    texts, changes = after(op(UPDATE, "Think FIRST\n", "plan-1"))
    assert (texts["plan"], changes) == ("Think FIRST\n", ["update"])


def test_the_first_text_makes_a_component_and_no_empty_sections_stay() -> None:
    draft, sections, (entry,) = edited(EMPTY, [op(ADD, TEXT, section="instruction")], budget_tokens=PLENTY)
    assert (sections, entry.id, entry.content, draft.next_id) == (("instruction",), "i-00001", TEXT, 2)


def test_adding_a_component_that_is_there_by_now_rewrites_it() -> None:
    texts, _ = after(op(ADD, "One."), op(ADD, "Two.", section="new"), op(ADD, "Three.", section="new"))
    assert texts == {"plan": "One.", "tone": "Be kind.", "new": "Three."}


def test_of_two_texts_for_one_component_the_one_with_the_newest_evidence_wins() -> None:
    texts = (op(UPDATE, "New.", "plan-1", evidence=("r-2",)), op(UPDATE, "Old.", "plan-1", evidence=("r-1",)))
    seen = [Seen(reflection_id=f"r-{n}", offset=n) for n in (1, 2)]
    update = update_of(BASE, texts, seen, holds="components")
    version = after_update(BASE, update, budget_tokens=PLENTY, now_ms=0)
    assert version.entries[0].content == "New."
    assert [change.kind for change in version.changes] == ["superseded", "update"]


def test_a_text_beyond_the_budget_is_dropped_and_nothing_is_evicted() -> None:
    texts, changes = after(op(UPDATE, "x" * 400, "plan-1"), budget=50)
    assert (texts, changes) == ({"plan": "Think first.", "tone": "Be kind."}, ["dropped"])


def test_a_shorter_text_is_taken_even_where_the_budget_is_exceeded_already() -> None:
    texts, _ = after(op(UPDATE, "Think.", "plan-1"), budget=1)
    assert texts["plan"] == "Think."


def test_operations_that_make_no_sense_for_components_are_dropped_and_recorded() -> None:
    texts, changes = after(
        op(MERGE, "All.", "plan-1", "tone-1"), op(UPDATE, "x", "gone-1"), op(REMOVE, "", "gone-1")
    )
    assert (texts, changes) == ({"plan": "Think first.", "tone": "Be kind."}, ["dropped"] * 3)


def test_a_component_that_comes_back_by_a_rejection_has_one_text() -> None:
    """A revocation had removed it, and a later batch wrote it anew under another id."""
    without = BASE.model_copy(update={"version": 5, "entries": BASE.entries[1:]})
    newest = without.model_copy(
        update={"version": 6, "entries": (*without.entries, part("plan", "Anew.", id="p-7"))}
    )
    left = rejected(without, "plan-1", BASE, newest)
    assert {(one.section, one.content) for one in left.entries} == {
        ("plan", "Think first."),
        ("tone", "Be kind."),
    }
    assert len(left.entries) == len(BASE.entries)


def test_an_operator_may_remove_a_component() -> None:
    edit = Command(
        command_id="e", playbook="p", kind="edit", operations=(op(REMOVE, "", "tone-1", evidence=()),)
    )
    changed = executing.after_command(BASE, edit, 1, target=None, budget_tokens=PLENTY, now_ms=0)
    assert ([one.section for one in changed.entries], changed.sections, changed.holds) == (
        ["plan"],
        ("plan",),
        "components",
    )


def test_a_rollback_brings_back_what_a_playbook_held() -> None:
    now = BASE.model_copy(update={"holds": "entries", "version": 9})
    back = Command(command_id="b", playbook="p", kind="rollback", version=4)
    assert executing.after_command(now, back, 1, target=BASE, budget_tokens=1, now_ms=0).holds == "components"


def test_the_longest_text_of_the_widest_letters_fits_a_record() -> None:
    text = "\U0001f41d" * 95_000
    draft, sections, entries = edited(EMPTY, [op(ADD, text, section="instruction")], budget_tokens=24_000)
    version = BASE.model_copy(
        update={"entries": entries, "sections": sections, "changes": tuple(draft.changes)}
    )
    assert len(encode(version)) < Playbook.max_bytes


# ---- formats


def test_an_import_of_two_texts_for_one_component_is_refused() -> None:
    entries = (part("plan", "a"), Entry(id="x", section="plan", content="b"))
    command = Command(command_id="i", playbook="p", kind="import", entries=entries, holds="components")
    with pytest.raises(ValueError, match="several for plan"):
        executing.after_command(BASE, command, 1, target=None, budget_tokens=1, now_ms=0)


def with_text(content: str) -> Playbook:
    entries = (part("plan", content, evidence=("r",), evidence_count=1), part("tone", "Be kind."))
    return BASE.model_copy(update={"entries": entries, "counters": False})


@pytest.mark.parametrize("form", ["gepa", "md", "ace", "json"])
def test_every_format_keeps_the_lines_of_a_text(form: Any) -> None:
    written = write_playbook(with_text(TEXT), form)
    back = read_playbook(written, form, name="p")
    assert [(one.section, one.content) for one in back.entries] == [("plan", TEXT), ("tone", "Be kind.")]
    assert held_by(BASE, back, form) == "components"
    assert says_the_same(with_text(TEXT), back, form)
    assert carried_over(with_text(TEXT), back, form)[0] == with_text(TEXT).entries[0]


def test_a_candidate_is_json_of_component_and_text() -> None:
    assert write_playbook(BASE, "gepa") == '{\n  "plan": "Think first.",\n  "tone": "Be kind."\n}\n'


@each_row("suffix", ["", ".json"])
@each_row(
    ("text", "form"),
    [
        ('{"instruction": "Be brief."}', "gepa"),
        ('\ufeff {"plan": "a", "tone": "b"}', "gepa"),
        ('{"name": "x"}', "json"),
        ('{"entries": []}', "json"),
        ("{}", "json"),
        ('{"plan": 1}', "json"),
    ],
)
def test_a_candidate_is_told_from_a_playbook_s_own_json(text: str, suffix: str, form: str) -> None:
    assert detect(text, suffix) == form


def test_a_playbook_of_entries_is_no_candidate_and_says_so() -> None:
    entries = (part("plan", "a"), Entry(id="x", section="plan", content="b"))
    with pytest.raises(ValueError, match="several for plan"):
        write_playbook(BASE.model_copy(update={"entries": entries, "holds": "entries"}), "gepa")


def test_an_import_of_entries_over_components_makes_it_a_playbook_of_entries() -> None:
    given = read_playbook("## A\n[a-1] one\n[a-2] two\n", "ace", name="p")
    assert held_by(BASE, given, "ace") == "entries"


def test_components_are_shown_as_markdown_unless_asked_otherwise() -> None:
    assert natural_form(BASE) == "md"
    assert natural_form(empty("p")) == "ace"
    assert "## plan\n\n- `plan-1` Answer briefly.\n\n  - one\n" in write_playbook(with_text(TEXT), "md")


def test_importing_a_candidate_sets_the_components_and_keeps_the_ids_there_are() -> None:
    given = read_playbook('{"tone": "Be kind.", "plan": "Think.\\n\\nThen act."}', "gepa", name="p")
    command = commands.import_(BASE, given, "gepa", None)
    assert command
    changed = executing.after_command(BASE, command, 1, target=None, budget_tokens=PLENTY, now_ms=0)
    assert (changed.holds, changed.sections) == ("components", ("tone", "plan"))
    assert [(one.id, one.content) for one in changed.entries] == [
        ("tone-1", "Be kind."),
        ("plan-1", "Think.\n\nThen act."),
    ]
    assert says_the_same(changed, given, "gepa")


def test_a_gepa_record_in_a_file_is_a_reflection_as_it_is() -> None:
    line = '{"Inputs": {"q": 1}, "Generated Outputs": "2", "Feedback": "3 was wanted", "score": 0}'
    found = read_line(line, "p")
    assert isinstance(found, Reflection)
    assert found.side_info == {"Inputs": '{"q": 1}', "Generated Outputs": "2", "Feedback": "3 was wanted"}
    assert read_line(line, "p") == found
