"""A playbook's name: whatever reads it as a path reads the same name."""

from pathlib import PurePosixPath
from urllib.parse import quote, unquote, urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from combee.core.formats.files import is_name
from combee.core.names.identity import similar_name
from combee_schemas.base import BranchName, LineName, PlaybookName
from combee_schemas.reflection import Reflection
from support.rows import each_row

GOOD = ("a", "support/refunds", "a.b..c/d_e-f", "2024/v1.0", "A/b/C", "a" * 200, "a./b.", "x/" * 99 + "y")
BAD = (
    "",
    ".",
    "..",
    "a/..",
    "a/../b",
    "../a",
    "./a",
    "a/.",
    "a/./b",
    "a/.hidden",
    "/",
    "/a",
    "a/",
    "a//b",
    "a\\b",
    "a/..\\b",
    "a/%2e%2e/b",
    "a%2Fb",
    "a\x00b",
    "a\nb",
    "a\n",
    "a\r",
    "a b",
    " a",
    "a\u202eb",
    "a\u200bb",
    "é",
    "ａ",
    "٣",
    "a?b",
    "a#b",
    "a:b",
    "~a",
    "-a",
    "_a",
    "a" * 201,
    "@a",
    "a@",
    "a@..",
    "a@./b",
    "a@b/c",
    "a/../b@c",
    "a@b\n",
    "a" * 201 + "@b",
)


@each_row("name", GOOD)
def test_names_of_which_each_part_begins_with_a_letter_or_a_digit_are_good(name: str) -> None:
    assert is_name(name)
    assert is_name(f"{name}@short", line=True)
    assert Reflection(reflection_id="r", playbook=name).playbook == name


@each_row("name", BAD)
def test_a_name_that_a_path_could_read_otherwise_is_none(name: str) -> None:
    assert not is_name(name)
    assert not is_name(name, line=True)
    with pytest.raises(ValidationError):
        Reflection(reflection_id="r", playbook=name)


@each_row("branch", ["..", ".", "a/b", "a\\b", "-a", "a\n", "a@b", "%2e"])
def test_a_branch_is_one_part_of_a_name(branch: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(BranchName).validate_python(branch)


ALPHABET = st.text("aZ0._-/@%\\", max_size=20)


@given(ALPHABET.filter(is_name))
def test_files_and_addresses_keep_a_name_as_it_is(name: str) -> None:
    assert str(PurePosixPath(name)) == name
    assert ".." not in PurePosixPath(name).parts
    assert urljoin("http://host/v1/playbooks/", name) == f"http://host/v1/playbooks/{name}"
    assert unquote(quote(name)) == name


@given(ALPHABET)
def test_a_name_of_a_playbook_is_a_line_s_without_a_branch(name: str) -> None:
    assert is_name(name) == (is_name(name, line=True) and "@" not in name)


def test_one_pattern_says_it_to_every_reader() -> None:
    patterns = {TypeAdapter(kind).json_schema()["pattern"] for kind in (PlaybookName, LineName)}
    assert len({pattern.partition("(@")[0].rstrip("$") for pattern in patterns}) == 1


@given(st.one_of(ALPHABET, st.text(max_size=30), st.text("a/", min_size=195, max_size=210)))
def test_the_name_that_is_offered_for_a_text_is_a_good_one(text: str) -> None:
    assert is_name(similar_name(text))


def test_a_good_name_is_most_like_itself() -> None:
    assert [similar_name(name) for name in ("support/refunds", "a.b/c_d", "a" * 200)] == [
        "support/refunds",
        "a.b/c_d",
        "a" * 200,
    ]
