"""What names somebody: in any case, composed or not, escaped or cut; and what a message never repeats."""

import json
import time
import unicodedata
from urllib.parse import quote, quote_plus

import pytest

from combee.core.log.erasure.selector import Marker, Selector, Subjects
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


@each_row(
    "text",
    [
        "ask Jane&nbsp;Roe first",
        "ask Jane&#32;Roe first",
        "ask Jane&#x20Roe first",
        "ask &#x4a;ane Roe first",
        "ask Jane<br>Roe first",
        "<td>Jane</td><td>Roe</td>",
        "ask <b>Jane</b> Roe first",
        "&lt;b&gt;Jane&lt;/b&gt; Roe",
        "ask Jane\u2800Roe first",
        "ask Jane\u3164Roe first",
        "ask Jane=20Roe first",
        "ask Ja=\r\nne Roe first",
        "=4Aane=20Roe",
        r"ask Jane\x20Roe first",
        r"ask Jane\xa0Roe first",
        r"ask Jane\040Roe first",
        r"ask Jane\u{20}Roe first",
        r"ask Jane\U00000020Roe first",
        "ask Jane\u2010Roe first",
        "jane:roe",
        "users/Jane/Roe.txt",
        "Jane,Roe,17",
        "jane, jane roe",
        "> ask Jane\n> Roe first",
        "# ask Jane\n#   Roe first",
        "ask **Jane** Roe first",
        "ask [Jane](https://example.com/17) Roe first",
        "ask Jane [Roe](<17> 'of support') first",
        "ask [Jane][1] [Roe][2] first",
        "| Jane | Roe | 17 |",
        "| **Jane** | | [Roe](17) |",
        "\u2502 Jane \u2502 Roe \u2502",
        'ask "Jane" Roe first',
        "=?utf-8?q?Jane_Roe?=",
        "body=ask%3A+%3E+Jane%0A%3E+Roe",
        json.dumps({"mail": "ask Jane=20Roe"}),
        json.dumps({"page": "ask Jane<br>\nRoe"}),
        json.dumps({"said": json.dumps({"quoted": "> ask Jane\n> Roe"})}),
    ],
)
def test_a_name_is_found_in_the_escapes_and_the_layout_of_formats(text: str) -> None:
    assert Subjects(("Jane Roe",)).named_in(text)
    assert Subjects(("\u201cJane Roe\u201d.",)).named_in_bytes(text.encode())


@each_row(
    "text",
    [
        "> ask Dr. Jane K.\n> Roe first",
        "ask **Dr.** **Jane** K. Roe first",
        "<td>Dr. Jane K.</td><td>Roe</td>",
        "> to 17 Deer St.,\n> Roeville",
        "17 Deer St.,<br>Roeville",
    ],
)
def test_a_name_with_signs_of_its_own_is_found_in_the_layout_of_formats(text: str) -> None:
    assert Subjects(("Dr. Jane K. Roe", "17 Deer St., Roeville")).named_in(text)


@each_row(
    "text",
    [
        "write to jane&#64;example.com",
        "write to jane&commat;example&period;com",
        "write to jane=40example.com",
        r"write to jane\@example.com",
        "<jane&#64;example.com>",
        "<jane=40example.com>",
    ],
)
def test_an_address_is_found_in_the_escapes_of_formats(text: str) -> None:
    assert Subjects(("jane@example.com",)).named_in(text)


@each_row(
    ("name", "text"), [("J\xfcrgen Gro\xdf", r"b'J\xc3\xbcrgen Gro\xc3\x9f'"), ("J\xfcrgen", r"'J\xfcrgen'")]
)
def test_a_name_is_found_in_bytes_as_python_shows_them(name: str, text: str) -> None:
    assert Subjects((name,)).named_in(text)


@each_row(
    ("name", "text"),
    [
        ("Jane Roe", "Jane: roe is a deer"),
        ("Jane Roe", "ask Jane. Roe is out"),
        ("Jane Roe", "Jane & Roe"),
        ("Jane K. Roe", "ask Jane K., Roe is out"),
        ("Jane Roe", "Jane / Roe"),
        ("Jane Roe", "jane/roebuck"),
        ("Jane Roe", "Jane<br>and<br>Roe"),
        ("Jane Roe", "Jane [17](https://example.com) Roe"),
        ("Jane Roe", "| Jane | 17 | Roe |"),
        ("jane.d", "Jane did it"),
        ("shop-7", "shop 7"),
        ("R&D", "for directors"),
        ("राम सेन", "रिम सेन"),
        ("jane", "jan<br>e"),
        ("Jane Roe", "&#" + "9" * 5_000 + ";"),
        ("Jane Roe", r"\U99999999 \u{ffffff} \ud800 &#x110000;"),
    ],
)
def test_what_only_resembles_a_name_is_not_erased(name: str, text: str) -> None:
    assert not Subjects((name,)).named_in(text)


@each_row(
    "unit",
    ["&#64;", "\\x20", "=20", "<b>", "jane<", "jane\n> ", "roe ** ", "\\\\", "&amp;", "%25", "jane, roe "],
)
def test_a_name_is_looked_for_in_linear_time(unit: str) -> None:
    subjects = Subjects(("Jane Q. Roe",))

    def seconds(size: int, repeats: int) -> float:
        text = "jane q. x roe " + unit * (size // len(unit))
        times = []
        for _ in range(repeats):
            began = time.thread_time()
            assert not subjects.named_in(text)
            times.append(time.thread_time() - began)
        return min(times)

    # Only what looks quadratic is measured closely.
    assert any(seconds(40_000, repeats) < 8 * seconds(10_000, repeats) + 0.01 for repeats in (1, 3))
