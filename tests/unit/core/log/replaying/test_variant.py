"""Variants as the command line writes them."""

import pytest

from combee.core.log.replaying.variant import SETTINGS, Variant, parse
from combee.process.settings.loading import GROUPS
from support.rows import each_row


def test_a_variant_names_what_it_does_otherwise() -> None:
    assert parse("same") == Variant(name="same")
    assert parse("more: copies=3, sim.law=lessons_only,without=source:shop,without=id:r-1") == Variant(
        name="more",
        settings={"copies": "3"},
        simulation={"law": "lessons_only"},
        without=("source:shop", "id:r-1"),
    )


def test_only_another_size_or_wait_cuts_batches_anew() -> None:
    assert parse("a:batch_size=80").cuts_anew
    assert parse("a:max_wait_s=5").cuts_anew
    assert not parse("a:copies=3,without=id:x").cuts_anew


@each_row(
    ("text", "says"),
    [
        ("", "not the name of a variant"),
        ("a b:copies=3", "not the name of a variant"),
        ("a.b", "not the name of a variant"),
        ("a:copies", "'copies' is not key=value"),
        ("a:bootstrap_servers=x", "a variant cannot change 'bootstrap_servers'; it can change model"),
    ],
)
def test_anything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)


def test_whatever_a_variant_changes_is_a_setting() -> None:
    known = {name for group in GROUPS.values() for name in group.model_fields}
    assert set(SETTINGS) <= known
