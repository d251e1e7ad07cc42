"""How Compose's broker starts, and how an old volume is carried over, without a container: volumes are folders."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.shown import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)
KAFKA = ROOT / "deploy" / "kafka"
METADATA = "__cluster_metadata-0"
COMBINED = '{"leaderId":1,"leaderEpoch":3,"votedId":-1,"data_version":0,"currentVoters":[{"voterId":1}]}'
OBSERVER = '{"leaderId":100,"leaderEpoch":3,"votedId":-1,"data_version":0,"currentVoters":[{"voterId":100}]}'
ENDED_BY_SIGTERM = 143
SESSION_AND_MARGIN_S = 62
"""What start-broker waits for a session of 60 s."""


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Return the volume of a broker that was killed."""
    folder = tmp_path / "broker"
    _node(folder, OBSERVER)
    return folder


def _node(folder: Path, quorum: str) -> None:
    (folder / METADATA).mkdir(parents=True)
    (folder / METADATA / "quorum-state").write_text(quorum)
    (folder / METADATA / "00000000000000000000.log").write_bytes(b"what the cluster knows")
    (folder / "meta.properties").write_text(
        "node.id=1\ndirectory.id=abcdefghijklmnopqrstuv\nversion=1\ncluster.id=one\n"
    )


def _port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def _listening(*ports: int) -> Iterator[None]:
    """Stand in for controllers: they only have to take connections."""
    servers = [socket.create_server(("127.0.0.1", port)) for port in ports]
    try:
        yield
    finally:
        for server in servers:
            server.close()


def _script(tmp_path: Path, **constants: int) -> Path:
    """Return a copy of start-broker whose time limits a test can await."""
    text = (KAFKA / "start-broker").read_text()
    for name, value in constants.items():
        text, count = re.subn(rf"\b{name}=\d+", f"{name}={value}", text)
        assert count == 1, name
    (tmp_path / "node").write_text((KAFKA / "node").read_text())
    (tmp_path / "start-broker").write_text(text)
    return tmp_path / "start-broker"


def _start(
    volume: Path,
    *ports: int,
    script: Path = KAFKA / "start-broker",
    session_ms: int = 100,
    check: bool = False,
) -> subprocess.Popen[str]:
    voters = ",".join(f"{100 + number}@127.0.0.1:{port}" for number, port in enumerate(ports))
    return subprocess.Popen(
        ["bash", str(script), *(["--check"] if check else ["echo", "Kafka runs"])],
        env={
            "PATH": "/usr/bin:/bin",
            "KAFKA_NODE_ID": "1",
            "KAFKA_LOG_DIRS": str(volume),
            "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
            "KAFKA_BROKER_SESSION_TIMEOUT_MS": str(session_ms),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize("left", ["new", "clean"])
def test_a_new_broker_and_one_that_was_stopped_start_at_once(tmp_path: Path, volume: Path, left: str) -> None:
    if left == "clean":
        (volume / ".kafka_cleanshutdown").touch()
    else:
        volume = tmp_path / "empty"
        volume.mkdir()

    # No controller is asked: a wait for this one would not end within the test.
    assert _ended(_start(volume, _port())) == (0, "Kafka runs\n", "")


def test_after_a_kill_it_starts_when_its_old_session_has_ended(tmp_path: Path, volume: Path) -> None:
    port, began = _port(), time.monotonic()
    with _listening(port):
        code, out, err = _ended(_start(volume, port, script=_script(tmp_path, margin_s=0)))

    assert (code, out) == (0, "Kafka runs\n")
    assert "the last stop was unclean" in err
    assert time.monotonic() - began >= 1


def test_a_session_is_counted_from_the_moment_at_which_a_controller_is_there(
    tmp_path: Path, volume: Path
) -> None:
    port = _port()
    process = _start(volume, port, script=_script(tmp_path, margin_s=0))
    assert process.stderr is not None
    assert "unclean" in process.stderr.readline()  # it waits by now
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    with _listening(port):
        assert _ended(process)[:2] == (0, "Kafka runs\n")


def test_of_three_controllers_two_have_to_be_there(tmp_path: Path, volume: Path) -> None:
    ports = [_port() for _ in range(3)]
    script = _script(tmp_path, give_up_s=1, margin_s=0)
    with _listening(ports[0]):
        assert _ended(_start(volume, *ports, script=script))[0] == 1
    with _listening(*ports[1:]):
        assert _ended(_start(volume, *ports, script=script))[0] == 0


def test_a_controller_that_never_comes_is_said_and_ends_the_start(tmp_path: Path, volume: Path) -> None:
    port = _port()
    code, out, err = _ended(_start(volume, port, script=_script(tmp_path, say_after_s=0, give_up_s=1)))

    assert (code, out) == (1, "")
    assert f"still waiting for a controller at 100@127.0.0.1:{port}" in err
    assert f"no controller at 100@127.0.0.1:{port} after 1 s: see 'docker compose logs controller'" in err


@pytest.mark.parametrize("waits_for", ["controller", "session"])
def test_sigterm_during_the_wait_ends_it_at_once(volume: Path, waits_for: str) -> None:
    port = _port()
    with _listening(*([port] if waits_for == "session" else [])):
        process = _start(volume, port, session_ms=60_000)
        assert process.stderr is not None
        assert f"({SESSION_AND_MARGIN_S} s)" in process.stderr.readline()
        if waits_for == "session":
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_until(
                lambda: _runs(children, f"sleep\0{SESSION_AND_MARGIN_S}"), 10, "the wait for the session"
            )
        began = time.monotonic()
        process.terminate()

        assert _ended(process)[:2] == (ENDED_BY_SIGTERM, "")
        assert time.monotonic() - began < 5


def _runs(children: Path, command: str) -> bool:
    commands = [Path(f"/proc/{child}/cmdline") for child in children.read_text().split()]
    return any(command in path.read_text() for path in commands if path.exists())


@pytest.mark.parametrize("check", [True, False])
def test_the_volume_of_a_combined_node_is_refused_and_stays_as_it_is(volume: Path, *, check: bool) -> None:
    (volume / METADATA / "quorum-state").write_text(COMBINED)
    before = _files(volume)
    code, out, err = _ended(_start(volume, _port(), check=check))

    assert (code, out) == (1, "")
    assert "docker compose run --rm carry-over" in err
    assert _files(volume) == before


def test_a_brokers_volume_passes_the_check_without_a_wait(volume: Path) -> None:
    assert _ended(_start(volume, _port(), check=True)) == (0, "", "")


# ---- the old volume


def _carry(broker: Path, controller: Path, *running: str, path: str = "/usr/bin:/bin") -> tuple[int, str]:
    done = subprocess.run(
        ["bash", str(KAFKA / "carry-over"), str(broker), "1", str(controller), "100", *running],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout + done.stderr


def _files(folder: Path) -> Mapping[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    _node(folder, COMBINED)
    (folder / "bootstrap.checkpoint").write_bytes(b"its first records")
    (folder / "combee.reflections-0").mkdir()
    (folder / "combee.reflections-0" / "00000000000000000000.log").write_bytes(b"what agents said")
    return folder


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Return a controller's volume that an attempt to start has formatted already."""
    folder = tmp_path / "new"
    _node(folder, '{"leaderId":100,"leaderEpoch":1,"votedId":-1}')
    (folder / METADATA / "00000000000000000000.log").write_bytes(b"nothing yet")
    return folder


def test_metadata_becomes_the_controllers_and_all_else_stays_the_brokers(old: Path, new: Path) -> None:
    before = _files(old)
    assert _carry(old, new)[0] == 0

    assert _files(old) == {name: data for name, data in before.items() if not name.endswith("quorum-state")}
    assert _files(new) == {
        f"{METADATA}/00000000000000000000.log": b"what the cluster knows",
        "bootstrap.checkpoint": b"its first records",
        "meta.properties": b"node.id=100\nversion=1\ncluster.id=one\n",
    }
    assert _ended(_start(old, _port(), check=True))[0] == 0


def test_the_controller_may_write_to_its_volume(old: Path, new: Path) -> None:
    _carry(old, new)
    owner = (old / "meta.properties").stat().st_uid

    assert {path.stat().st_uid for path in (new, *new.rglob("*"))} == {owner}


def test_a_second_time_nothing_is_carried_over(old: Path, new: Path) -> None:
    _carry(old, new)
    (new / METADATA / "00000000000000000001.log").write_bytes(b"what came later")
    before = _files(old), _files(new)
    code, said = _carry(old, new)

    assert (code, (_files(old), _files(new))) == (0, before)
    assert "nothing to carry over" in said


def test_a_kafka_that_runs_has_to_be_stopped_first(old: Path, new: Path) -> None:
    before, port = (_files(old), _files(new)), _port()
    with _listening(port):
        code, said = _carry(old, new, f"127.0.0.1:{_port()}", f"127.0.0.1:{port}")

    assert (code, (_files(old), _files(new))) == (1, before)
    assert "docker compose down" in said


def test_interrupted_it_leaves_the_old_volume_as_it_was_and_can_be_run_again(
    old: Path, new: Path, tmp_path: Path
) -> None:
    before, tools = _files(old), tmp_path / "tools"
    tools.mkdir()
    (tools / "sync").write_text("#!/bin/sh\nexit 1\n")
    (tools / "sync").chmod(0o755)

    assert _carry(old, new, path=f"{tools}:/usr/bin:/bin")[0] == 1
    assert _files(old) == before
    assert _ended(_start(old, _port(), check=True))[0] == 1
    assert _carry(old, new)[0] == 0
    assert _files(new)["meta.properties"].startswith(b"node.id=100\n")
