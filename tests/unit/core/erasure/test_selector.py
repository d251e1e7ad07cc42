"""What names somebody: in any case, composed or not, escaped or cut; and what a message never repeats."""

import json
import unicodedata
from urllib.parse import quote, quote_plus

import pytest

from combee.core.erasure.selector import Marker, Selector, Subjects
from support.rows import each_row

NAME = "Jürgen Groß"


@each_row(
    "text",
    [
        f"ask {NAME} first",
        NAME.upper(),
        unicodedata.normalize("NFD", NAME),
        json.dumps({"who": NAME}),
        f"https://example.com/?q={quote(NAME)}",
        f"https://example.com/?q={quote_plus(NAME)}",
    ],
)
def test_a_name_is_found_however_it_is_written(text: str) -> None:
    assert Subjects((NAME,)).named_in(text)
    assert Subjects((NAME,)).named_in_bytes(b"\xd9\x20" + text.encode())


@each_row("text", ["ask Jürgen first", "", "GroB", "J"])
def test_what_is_another_name_is_not(text: str) -> None:
    assert not Subjects((NAME,)).named_in(text)


def test_a_name_that_was_cut_off_is_found_only_where_texts_are_cut() -> None:
    address = Subjects(("jane@example.com",))
    assert address.named_in("x" * 293 + "jane@ex")
    assert not address.named_in("x" * 292 + "jane@ex")
    assert not address.named_in("x" * 298 + "ja")


def test_nobody_is_looked_for_where_nobody_is_given() -> None:
    assert not Subjects().named_in("anybody")
    assert not Subjects().named_in_bytes(b"anybody")


def test_a_subject_that_names_half_of_all_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        Subjects((" a ",))


def test_a_subject_is_in_no_representation() -> None:
    assert NAME not in repr(Selector(subjects=Subjects((NAME,))))
    assert "secret" not in repr(Marker(b"secret")).replace("secret=", "")


def test_a_mark_is_the_same_for_one_text_and_depends_on_the_secret() -> None:
    first, second = Marker(b"1"), Marker(b"2")
    assert first("Jane") == first("jane")
    assert first("jane") != first("june")
    assert first("jane") != second("jane")
    assert "jane" not in first("jane")


@each_row(
    "text",
    [
        "ask Jane  Roe first",
        "ask Jane\nRoe first",
        "ask Jane\r\n\tRoe first",
        "ask Jane\u00a0Roe first",
        "ask Ja\u00adne Roe first",
        "ask J\u200ba\u200dn\u2060e\ufeff Roe first",
        "ask Ｊａｎｅ Roe first",
        json.dumps({"who": "Jane\n Roe"}),
        json.dumps({"who": "Ja\u00adne Roe"}),
        json.dumps({"call": json.dumps({"who": "Jane\nRoe"})}),
        f"https://example.com/?q={quote('Jane  Roe')}",
        "jane-roe",
        "the label Jane_Roe",
        "jane.roe",
        "https://example.com/jane+roe",
    ],
)
def test_a_name_is_found_whatever_spaces_unseen_characters_or_joints_are_in_it(text: str) -> None:
    assert Subjects(("Jane Roe",)).named_in(text)
    assert Subjects(("jane\u200b  roe",)).named_in(text)
    assert Subjects(("Jane Roe",)).named_in_bytes(text.encode())


@each_row("label", ["jane.roe-example.com", "jane-roe-example-com", "Jane_Roe_Example.com"])
def test_an_address_is_found_as_a_label_has_it(label: str) -> None:
    assert Subjects(("jane_roe@example.com", "jane.roe@example.com")).named_in(label)


@each_row("text", ["janeroe", "Jane and Roe", "jane, roe", "ja ne roe"])
def test_other_words_are_no_spelling_of_a_name(text: str) -> None:
    assert not Subjects(("Jane Roe",)).named_in(text)
