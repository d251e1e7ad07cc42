"""Whatever a playbook holds, ACE text, Markdown and JSON keep it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.core.formats.files import (
    FORMATS,
    Format,
    carried_over,
    detect,
    next_id,
    read_playbook,
    says_the_same,
    write_playbook,
)
from combee.core.formats.render import ace_text, markdown_text, parse_ace
from combee_schemas.playbook import Entry, Playbook
from support.rows import each_row

GENERAL = tuple(form for form in FORMATS if form != "gepa")
"""Formats that hold any playbook; a candidate has one text per section (test_gepa_formats.py)."""

TRICKY_LINES = st.sampled_from(
    [
        "",
        "  ",
        "## SECTION",
        "\\## SECTION",
        "[id-00001] x",
        "[id-00001] helpful=1 harmful=2 :: x",
        "helpful=1 harmful=2 :: x",
        "\\helpful=1 harmful=2 :: ",
        "(+1 -2) x",
        "- `id` x",
        "# title",
        "\\",
        "\\\\",
        "    indented",
        "a\u2028b\x0cc",
        "```python",
        "```!",
        "x !`id` &#33;` &amp;#33;`",
    ]
)
CONTENTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    st.lists(TRICKY_LINES, max_size=6).map("\n".join),
)
IDS = st.one_of(
    st.from_regex(r"[a-z]{3}-[0-9]{5}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="%"), min_size=1, max_size=60),
)
SECTIONS = st.from_regex(r"[A-Z&]{1,8}( [A-Z0-9:]{1,8}){0,2}", fullmatch=True)
COUNTS = st.integers(0, 10**6)


@st.composite
def playbooks(draw: st.DrawFn) -> Playbook:
    counters = draw(st.booleans())
    sections = draw(st.lists(SECTIONS, unique=True, min_size=1, max_size=3))
    count = COUNTS if counters else st.just(0)
    ids = draw(st.lists(IDS, unique=True, max_size=4))
    places = sorted(draw(st.integers(0, len(sections) - 1)) for _ in ids)
    entries = tuple(
        Entry(
            id=one,
            section=sections[at],
            content=draw(CONTENTS),
            helpful=draw(count),
            harmful=draw(count),
        )
        for one, at in zip(ids, places, strict=True)
    )
    return Playbook(
        name="a/b",
        version=draw(st.integers(0, 9)),
        sections=tuple(sections),
        entries=entries,
        counters=counters or not entries,
    )


def content(playbook: Playbook) -> tuple[object, ...]:
    return playbook.sections, playbook.entries, playbook.counters


@given(playbooks(), st.sampled_from(GENERAL))
@settings(max_examples=25, deadline=None)
def test_every_format_reads_back_what_was_written(playbook: Playbook, form: Format) -> None:
    text = write_playbook(playbook, form)
    again = read_playbook(text, form, name="a/b")
    assert content(again) == content(playbook)
    assert says_the_same(playbook, again, form)
    assert write_playbook(again.model_copy(update={"version": playbook.version}), form) == text


@given(playbooks(), st.sampled_from(GENERAL))
@settings(max_examples=25, deadline=None)
def test_line_ends_of_other_systems_change_nothing(playbook: Playbook, form: Format) -> None:
    text = write_playbook(playbook, form).replace("\n", "\r\n")
    assert content(read_playbook("\ufeff" + text, form, name="a/b")) == content(playbook)


@given(st.text())
@settings(max_examples=25, deadline=None)
def test_any_text_is_read_or_refused_and_what_is_read_stays(text: str) -> None:
    for form in GENERAL:
        try:
            read = read_playbook(text, form, name="a/b")
        except ValueError:
            continue
        assert content(read_playbook(write_playbook(read, form), form, name="a/b")) == content(read)


@pytest.mark.shared
def test_a_playbook_learned_elsewhere_keeps_every_line(shared: Path) -> None:
    text = (shared / "data" / "playbook_appworld_offline.txt").read_text("utf-8")
    read = read_playbook(text, "ace", name="appworld")
    assert len(read.entries) == 318
    assert not read.counters
    through_json = read_playbook(write_playbook(read, "json"), "json", name="x")
    through_markdown = read_playbook(write_playbook(through_json, "md"), "md", name="x")
    for one in (read, through_json, through_markdown):
        assert entry_lines(ace_text(one)) == entry_lines(text)


def entry_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_counters_stay_in_the_variant_they_were_read_in() -> None:
    text = "## OTHERS\n[misc-00001] helpful=3 harmful=1 :: look twice\n"
    assert ace_text(read_playbook(text, "ace", name="x")) == text
    assert "- `misc-00001` (+3 -1) look twice" in markdown_text(read_playbook(text, "ace", name="x"))


def test_a_section_that_comes_twice_is_one_section() -> None:
    text = "## A\n[a-1] one\n## B\n[b-1] two\n## A\n[a-2] three\n"
    read = read_playbook(text, "ace", name="x")
    assert read.sections == ("A", "B")
    assert ace_text(read) == "## A\n[a-1] one\n[a-2] three\n\n## B\n[b-1] two\n"


def test_lines_below_an_entry_belong_to_it() -> None:
    text = "## CODE\n[code-00001] run this:\n```python\n# a comment\n\nprint()\n```\n\n[code-00002] next\n"
    read = read_playbook(text, "ace", name="x")
    assert read.entries[0].content == "run this:\n```python\n# a comment\n\nprint()\n```"
    assert "run this:\n```python\n# a comment\n\nprint()\n```\n[code-00002] next\n" in ace_text(read)


@each_row(
    ("form", "text", "where"),
    [
        ("ace", "\nhello\n## A\n", "line 2"),
        ("ace", "## A\n[x] one\n[y] two\n[x] three\n", "line 4"),
        ("ace", f"## A\n[{'x' * 201}] one\n", "line 2"),
        ("md", "# t\n\n* a bullet\n", "line 3"),
        ("md", "## A\n- `x` one\n- `x` two\n", "line 3"),
        ("json", '{"name": "x",\n "entries": [}\n', "line 2"),
        ("json", '{"name": "x", "entries": [{"id": "a", "section": "S"}]}', "entries.0.content"),
        ("json", '{"entries": [{"id":"a","section":"S","content":"1"},{"id":"a","section":"S","content":"2"}]}',
         "entries.1"),
        ("json", '{"name": "no spaces please"}', "name"),
        ("json", "[]", "object"),
        ("kayba", '{"skills": {"a": {"id": "a", "section": "S"}}}', "skills.a.content"),
        ("kayba", '{"skills":{"a":{"id":"x","section":"S","content":"1"},"b":{"id":"x","section":"S","content":""}}}',
         "skills.1"),
        ("kayba", "{}", "skills"),
        ("skill", "---\nname: x\n---\n\n* a bullet\n", "line 5"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(form: Format, text: str, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        read_playbook(text, form, name="x")


@each_row(
    ("text", "suffix", "form"),
    [
        ("## A\n[x] one\n", "", "ace"),
        ("## A\n[x] one\n", ".txt", "ace"),
        ("# name (version 3)\n\n## A\n", "", "md"),
        ("## A\n\n- `x` one\n", "", "md"),
        (' {"name": "x"}', "", "json"),
        ("## A\n", ".MD", "md"),
        ("", ".json", "json"),
        ("", "", "ace"),
        ('{"skills": {}, "sections": {}}', "", "kayba"),
        ('{"skills": {}, "sections": {}}', ".json", "kayba"),
        ("---\nname: x\n---\n# t\n", ".md", "skill"),
        ("---\r\nname: x\r\n---\r\n## A\r\n", "", "skill"),
    ],
)
def test_the_format_is_recognised(text: str, suffix: str, form: Format) -> None:
    assert detect(text, suffix) == form


def test_kayba_s_own_file_is_read_and_keeps_what_an_entry_rests_on() -> None:
    text = """{
      "skills": {
        "general-00041": {"id": "general-00041", "section": "general", "content": "Look twice.",
          "justification": null, "helpful": 3, "harmful": 1, "neutral": 2,
          "created_at": "2025-11-01T00:00:00+00:00", "embedding": [0.1],
          "status": "active", "sources": [{"reflection_id": "r-1"}, {"trace": "t-1"}]},
        "general-00042": {"id": "general-00042", "section": "general", "content": "Never mind.", "status": "invalid"}
      },
      "sections": {"general": ["general-00041", "general-00042"], "empty": []},
      "next_id": 43,
      "similarity_decisions": {}
    }"""
    read = read_playbook(text, "kayba", name="x")
    (entry,) = read.entries
    assert (entry.content, entry.helpful, entry.harmful) == ("Look twice.", 3, 1)
    assert (entry.evidence, entry.evidence_count) == (("r-1",), 1)
    assert (read.name, read.sections, read.next_id) == ("x", ("general", "empty"), 43)
    assert read_playbook(write_playbook(read, "kayba"), "kayba", name="y") == read


def test_a_skill_s_front_matter_says_what_it_is() -> None:
    read = read_playbook(
        "# Support/Refunds: EU (version 7)\n\n## A\n\n- `x` one\n", "md", name="support/Refunds_EU"
    )
    text = write_playbook(read.model_copy(update={"version": 7}), "skill")
    assert text.startswith('---\nname: support-refunds-eu\ndescription: "support/Refunds_EU: 1 lessons')
    assert read_playbook(text, "skill", name="other").name == "support/Refunds_EU"
    assert read_playbook(text, "skill", name="other").version == 7


@pytest.mark.parametrize(
    "content", ["!`id`", "Now: !`id`", "a\n```!\nid\n```", "a\n````!\nid\n````", "&#33;`id`"]
)
def test_a_skill_holds_no_command_that_an_agent_would_run_and_reads_back_as_it_was(content: str) -> None:
    entry = Entry(id="x!", section="A", content=content)
    playbook = Playbook(name="a/b", version=1, sections=("A",), entries=(entry,))
    text = write_playbook(playbook, "skill")
    assert "!`" not in text
    assert "```!" not in text
    assert read_playbook(text, "skill", name="a/b").entries == (entry,)


def test_a_markdown_title_names_the_playbook() -> None:
    read = read_playbook("# support/refunds (version 7)\n\n## A\n\n- `x` one\n", "md", name="other")
    assert (read.name, read.version) == ("support/refunds", 7)
    assert read_playbook("# My notes\n\n## A\n", "md", name="other").name == "other"


def test_ids_are_continued_after_the_largest_number() -> None:
    entries = parse_ace("## A\n[a-00007] x\n[b-12] y\n[free] z\n")[1]
    assert next_id(entries) == 13


def test_what_a_format_cannot_say_is_carried_over_where_the_content_stays() -> None:
    old = [
        Entry(id="a", section="A", content="one", helpful=4, evidence=("r1",), evidence_count=1),
        Entry(id="b", section="A", content="two", helpful=2, evidence=("r2",), evidence_count=1),
    ]
    current = Playbook(name="x", version=3, sections=("A",), entries=tuple(old), counters=False)
    given_text = read_playbook("## A\n[a] one\n[b] two, but better\n", "ace", name="x")
    kept = carried_over(current, given_text, "ace")
    assert kept[0] == old[0]
    assert (kept[1].content, kept[1].helpful, kept[1].evidence) == ("two, but better", 0, ())
