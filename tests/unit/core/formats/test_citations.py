import json

from hypothesis import given
from hypothesis import strategies as st

from combee.core.formats.render import ace_id, cited, with_citations
from combee_schemas.base import Shown
from combee_schemas.playbook import Entry
from combee_schemas.trace import Trace
from support.rows import each_row

IDS = ("calc-00003", "gen-00001", "misc-00002", "my entry]")


@each_row(
    ("text", "found"),
    [
        ("As [calc-00003] says, 68.", ("calc-00003",)),
        ("68 [gen-00001][calc-00003], again [gen-00001]", ("gen-00001", "calc-00003")),
        ("68 (see [gen-00001, calc-00003; `misc-00002`])", ("gen-00001", "calc-00003", "misc-00002")),
        (json.dumps({"bullet_ids": ["calc-00003"], "final_answer": "68"}), ("calc-00003",)),
        (json.dumps({"bullet_ids": ["calc-00003", "gen-00001"]}, indent=2), ("calc-00003", "gen-00001")),
        ("**[calc-00003]** and [*gen-00001*]", ("calc-00003", "gen-00001")),
        (f"by [{ace_id('my entry]')}]", ("my entry]",)),
        ("[calc-99999] is nobody's, [CALC-00003] is spelt otherwise", ()),
        ("calc-00003 without brackets is a word like any other", ()),
        ("[calc-000031], [xcalc-00003] and [see calc-00003x]", ()),
        ("[[calc-00003] is enough", ("calc-00003",)),
        ("[calc-00003", ()),
        ("", ()),
    ],
)
def test_an_entry_is_cited_by_its_id_in_brackets(text: str, found: tuple[str, ...]) -> None:
    assert cited(text, IDS) == found


@given(st.text("[]calc-00003, \"'\n", max_size=200))
def test_nothing_is_cited_that_is_not_there(text: str) -> None:
    assert set(cited(text, IDS)) <= {entry_id for entry_id in IDS if entry_id in text}


ENTRIES = tuple(Entry(id=entry_id, section="OTHERS", content=entry_id) for entry_id in IDS)


def trace(**fields: object) -> Trace:
    answer = {"answer": "By [calc-00003] and [gen-00001] it is 68; [misc-00099] is made up."}
    return Trace.model_validate({"trace_id": "t", "playbook": "p", "task": "t", **answer, **fields})


@each_row(
    ("fields", "used"),
    [
        ({}, ("calc-00003", "gen-00001")),
        ({"shown": Shown(version=2, entry_ids=("calc-00003", "misc-00002"))}, ("calc-00003",)),
        ({"shown": Shown(version=2, entry_ids=("misc-00099",))}, ("misc-00099",)),
        ({"bullet_ids": ("misc-00002",)}, ("misc-00002",)),
        ({"answer": "", "trajectory": "It read [calc-00003]."}, ()),
    ],
    ids=["newest version", "shown", "shown, gone since", "the agent's report holds", "read, not cited"],
)
def test_a_trace_names_the_entries_that_its_answer_cites_of_those_shown(
    fields: dict[str, object], used: tuple[str, ...]
) -> None:
    assert with_citations(trace(**fields), ENTRIES).bullet_ids == used
