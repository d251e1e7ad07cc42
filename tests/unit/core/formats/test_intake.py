"""JSON lines from files and streams: each line for itself, whatever stands in it."""

import json

from combee.core.formats.intake import lines_of
from combee.core.formats.items import read_items
from combee.core.formats.trajectories.trajectory import json_lines
from combee_schemas.trace import Trace
from support.rows import each_row

GOOD = json.dumps({"task": "t", "answer": "a"})


@each_row(
    ("line", "why"),
    [
        ("[" * 100_000, "not JSON"),
        ('{"task": "t", "answer": "\\ud800"}', "UTF-8"),
        ('{"key_insight": "\\ud800"}', "UTF-8"),
        ('{"task": "t", "answer": "\udcff"}', "UTF-8"),
    ],
)
def test_a_line_that_cannot_be_read_is_rejected_by_itself(line: str, why: str) -> None:
    said: list[str] = []
    items, rejected = read_items([GOOD, line, GOOD], "p", lambda _, problem: said.append(problem))
    assert (len(items), rejected) == (2, 1)
    assert why in said[0]


def test_only_a_newline_ends_a_line_of_json() -> None:
    given = [{"task": f"a{end}b", "answer": "c"} for end in "\x85\u2028\u2029"]
    text = "\r\n".join(json.dumps(each, ensure_ascii=False) for each in given)
    items, rejected = read_items(lines_of(text), "p", lambda *_: None)
    assert rejected == 0
    assert [item.task for item in items if isinstance(item, Trace)] == [each["task"] for each in given]
    assert list(json_lines(text)) == given
