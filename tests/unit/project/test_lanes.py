import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis.internal import charmap

from support.lanes import is_shown, lane_of, marks, refusal, shared_out, wants
from support.rows import each_row

TESTS = Path(__file__).parents[2]
SLOW = {"faust", "matplotlib", "nicegui"}


def test_a_test_is_in_the_lane_of_its_folder() -> None:
    assert lane_of(TESTS / "kafka" / "deep" / "test_x.py", TESTS) == "kafka"
    assert lane_of(TESTS.parent / "elsewhere.py", TESTS) == ""


def test_lanes_and_the_broker_fixture_are_marked() -> None:
    assert marks("unit", []) == frozenset()
    assert marks("e2e", ["kafka"]) == {"e2e", "kafka"}
    assert marks("contract", ["kafka"]) == {"kafka"}
    assert marks("faults", []) == {"faults"}
    assert marks("deploy", []) == {"deploy"}


def test_a_unit_test_that_asks_for_a_broker_is_told_where_to_go() -> None:
    assert "move it to tests/kafka" in (refusal("unit", ["kafka"]) or "")
    assert refusal("unit", ["tmp_path"]) is None
    assert refusal("kafka", ["kafka"]) is None


def test_each_process_begins_with_its_share_of_the_files_whose_tests_wait() -> None:
    files = [
        TESTS / lane / f"test_{name}.py"
        for lane, name in zip(["contract"] * 5 + ["kafka"] * 5, "aabccdefff", strict=True)
    ]
    order = shared_out(files, TESTS, 2)
    assert sorted(order) == list(range(10))
    names = [files[place].stem.removeprefix("test_") for place in order]
    assert names == ["d", "f", "f", "f", "a", "e", "a", "b", "c", "c"]
    assert shared_out(files[:5], TESTS, 3) == [0, 1, 2, 3, 4]
    assert sorted(shared_out(files, TESTS, 9)) == list(range(10))


def test_of_what_surrounds_a_test_only_what_went_wrong_is_shown() -> None:
    phases, outcomes = ("setup", "call", "teardown"), ("passed", "skipped", "failed")
    hidden = [pair for pair in product(phases, outcomes) if not is_shown(*pair)]
    assert hidden == [("setup", "passed"), ("teardown", "passed")]


@each_row(
    ("arguments", "expression", "wanted"),
    [
        ([], "", False),
        ([str(TESTS)], "", False),
        ([str(TESTS / "faults")], "", True),
        ([str(TESTS / "faults" / "test_x.py") + "::test_y"], "", True),
        ([str(TESTS)], "faults", True),
        ([str(TESTS)], "not faults", False),
    ],
)
def test_the_fault_suite_runs_only_when_asked_for(
    arguments: list[str], expression: str, *, wanted: bool
) -> None:
    assert wants("faults", arguments, expression, TESTS) is wanted
    assert not wants("deploy", arguments, expression, TESTS)


def test_hypothesis_draws_texts_from_all_that_utf_8_can_hold() -> None:
    encodable, changed_on_the_way = charmap.intervals_from_codec("utf-8")
    text = "".join(chr(at) for first, last in encodable.intervals for at in range(first, last + 1))
    assert text.encode().decode() == text
    assert len(encodable) == sys.maxunicode + 1 - len(range(0xD800, 0xE000)), "all but surrogates"
    assert not changed_on_the_way


def test_no_unit_test_imports_what_takes_long_and_few_need(request: pytest.FixtureRequest) -> None:
    if {lane_of(item.path, TESTS) for item in request.session.items} != {"unit"}:
        pytest.skip("other lanes do")
    assert SLOW & sys.modules.keys() == set(), (
        "every process of a run pays for it: move the test to tests/contract"
    )
