"""How a client reads playbooks: from memory, by label and version, with updates, from disk."""

import math
import time
from pathlib import Path

import pytest

from combee.sdk import (
    Client,
    MemoryTransport,
    PlaybookView,
)
from combee_schemas.base import Shown
from support.sdk import DEADLINE_S, NAME, SilentTransport, UnreliableTransport, until


def test_a_playbook_is_read_from_memory_with_its_labels(client: Client, memory: UnreliableTransport) -> None:
    memory.put_playbook(NAME, "be kind")
    memory.put_label(NAME, "production", 1)
    until(lambda: client.playbook(NAME).labels == ("latest", "production"))
    found = client.playbook(NAME, fallback="unused")
    assert (found.version, found.is_fallback, found.name) == (1, False, NAME)
    assert 0 <= found.age_s < DEADLINE_S


def test_without_a_playbook_the_fallback_is_what_it_says(client: Client) -> None:
    found = client.playbook(NAME, fallback="Be brief.")
    assert (found.version, found.is_fallback, found.render(), found.age_s) == (0, True, "Be brief.", math.inf)
    assert found.shown() == Shown(version=0)


def test_an_old_version_is_fetched_once(client: Client, memory: UnreliableTransport) -> None:
    for text in ("one", "two", "three"):
        memory.put_playbook(NAME, text)
    until(lambda: client.playbook(NAME).version == 3)
    assert [client.playbook(NAME, version=1).version for _ in range(3)] == [1, 1, 1]
    assert memory.fetches == 1


def test_a_version_that_does_not_exist_is_not_looked_for_each_time(
    client: Client, memory: UnreliableTransport
) -> None:
    memory.put_playbook(NAME, "one")
    assert all(client.playbook(NAME, version=9, fallback="f").is_fallback for _ in range(3))
    assert memory.fetches == 1


def test_a_label_that_moves_brings_its_version_before_it_is_asked_for(
    client: Client, memory: UnreliableTransport
) -> None:
    for text in ("one", "two", "three"):
        memory.put_playbook(NAME, text)
    memory.put_label(NAME, "production", 1)
    until(lambda: client.playbook(NAME, label="production").version == 1)
    memory.put_label(NAME, "production", 2)
    until(lambda: client.playbook(NAME, label="production").version == 2)
    assert client.playbook(NAME, label="production").labels == ("production",)
    assert client.playbook(NAME, label="staging").is_fallback


def test_updates_are_told_from_what_is_known_on_in_order_and_until_the_end(
    client: Client, memory: UnreliableTransport
) -> None:
    heard: list[int] = []
    memory.put_playbook(NAME, "one")
    until(lambda: client.playbook(NAME).version == 1)
    end = client.on_update(NAME, lambda view: heard.append(view.version))
    for text in ("two", "three"):
        memory.put_playbook(NAME, text)
    until(lambda: heard == [1, 2, 3])
    end()
    memory.put_playbook(NAME, "four")
    until(lambda: client.playbook(NAME).version == 4)
    assert heard == [1, 2, 3]


def test_a_callback_that_fails_is_called_again(client: Client, memory: UnreliableTransport) -> None:
    heard: list[int] = []

    def failing(view: PlaybookView) -> None:
        heard.append(view.version)
        raise RuntimeError("mine")

    client.on_update(NAME, failing)
    memory.put_playbook(NAME, "one")
    memory.put_playbook(NAME, "two")
    until(lambda: heard == [1, 2])


def test_a_deleted_playbook_is_gone_and_may_begin_again(client: Client, memory: UnreliableTransport) -> None:
    heard: list[bool] = []
    client.on_update(NAME, lambda view: heard.append(view.is_fallback))
    memory.put_playbook(NAME, "one")
    until(lambda: heard == [False])
    memory.delete_playbook(NAME)
    until(lambda: heard == [False, True])
    assert client.playbook(NAME, fallback="f").render() == "f"


def test_a_broker_that_is_away_is_waited_for_once(caplog: pytest.LogCaptureFixture) -> None:
    with Client(transport=SilentTransport) as client:
        assert client.playbook(NAME, fallback="f", timeout_s=0.05).is_fallback
        began = time.monotonic()
        assert all(client.playbook(NAME, fallback="f", timeout_s=60).is_fallback for _ in range(100))
        assert time.monotonic() - began < 30
        assert not client.ready(timeout_s=0.01)
    assert caplog.text.count("no answer for now") == 1


def test_the_next_start_has_the_last_known_text_from_disk(
    memory: UnreliableTransport, tmp_path: Path
) -> None:
    memory.put_playbook(NAME, "be kind")
    with Client(transport=lambda: memory, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    with Client(transport=SilentTransport, cache_dir=tmp_path) as client:
        found = client.playbook(NAME, fallback="f", timeout_s=0.01)
        assert (found.version, found.is_fallback) == (1, False)
        assert client.playbook("other", fallback="f", timeout_s=0.01).is_fallback


def test_a_broken_file_on_disk_is_passed_over(memory: UnreliableTransport, tmp_path: Path) -> None:
    memory.put_playbook(NAME, "be kind")
    with Client(transport=lambda: memory, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    for path in tmp_path.glob("*.json"):
        path.write_text('{"name": ')
    with Client(transport=SilentTransport, cache_dir=tmp_path) as client:
        assert client.playbook(NAME, fallback="f", timeout_s=0.01).is_fallback


def test_a_file_on_disk_that_another_user_can_have_written_is_passed_over(
    memory: UnreliableTransport, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory.put_playbook(NAME, "be kind")
    with Client(transport=lambda: memory, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    for path in tmp_path.glob("*.json"):
        path.chmod(0o666)
    with Client(transport=SilentTransport, cache_dir=tmp_path) as client:
        assert client.playbook(NAME, fallback="f", timeout_s=0.01).is_fallback
    assert "can be written by everybody" in caplog.text


def test_what_the_broker_says_goes_before_what_was_on_disk(tmp_path: Path) -> None:
    old, new = MemoryTransport(), MemoryTransport()
    for text in ("one", "two"):
        old.put_playbook(NAME, text)
    with Client(transport=lambda: old, cache_dir=tmp_path) as client:
        client.playbook(NAME)
        until(lambda: bool(list(tmp_path.glob("*.json"))))
    new.put_playbook(NAME, "begun again")
    with Client(transport=lambda: new, cache_dir=tmp_path) as client:
        assert client.playbook(NAME).version == 1
