import os
from dataclasses import replace
from pathlib import Path

from combee.adapters.embedded_kafka.java import Java
from combee.adapters.embedded_kafka.jvm import ClassDataArchive
from support.fake_java import script


def archive(tmp_path: Path, *, own_base: bool = True) -> ClassDataArchive:
    java = script(
        tmp_path / "java" / "bin" / "java", '#!/bin/sh\nfor a; do last="$a"; done\n: > "${last#*=}"\n'
    )
    if own_base:
        script(tmp_path / "java" / "lib" / "server" / "classes.jsa", "")
    jar = script(tmp_path / "one.jar", "classes")
    return ClassDataArchive(folder=tmp_path / "archives", java=Java(path=java, banner="17"), jars=(jar,))


def record(one: ClassDataArchive) -> Path:
    target = Path(one.recording()[-1].partition("=")[2])
    target.write_text("recorded")
    return target


def test_the_first_broker_records_and_the_next_one_uses_it(tmp_path: Path) -> None:
    one = archive(tmp_path)
    assert one.flags() == ()
    recorded = record(one)

    flags = one.flags()

    assert not recorded.exists()
    assert Path(flags[0].partition("=")[2]).read_text() == "recorded"
    assert one.recording() == ()


def test_what_two_brokers_recorded_at_once_is_kept_once(tmp_path: Path) -> None:
    one = archive(tmp_path)
    first, second = record(one), record(one)

    assert first != second
    assert one.flags()
    assert len(list(one.folder.iterdir())) == 1


def test_another_version_of_the_same_java_starts_anew_and_drops_the_old_archive(tmp_path: Path) -> None:
    one = archive(tmp_path)
    record(one)
    assert one.flags()

    newer = replace(one, java=replace(one.java, banner="21"))

    assert newer.flags() == ()
    assert list(one.folder.iterdir()) == []


def test_jars_that_were_fetched_again_start_anew(tmp_path: Path) -> None:
    one = archive(tmp_path)
    record(one)
    assert one.flags()

    os.utime(one.jars[0], (1, 1))

    assert one.flags() == ()


def test_a_forgotten_archive_is_not_used_again(tmp_path: Path) -> None:
    one = archive(tmp_path)
    record(one)
    assert one.flags()

    one.forget()

    assert one.flags() == ()


def test_a_java_without_an_archive_of_its_own_gets_one_below_ours(tmp_path: Path) -> None:
    one = archive(tmp_path, own_base=False)
    record(one)

    layers = one.flags()[0].partition("=")[2].split(":")

    assert len(layers) == 2
    assert layers[0].endswith(".base.jsa")
