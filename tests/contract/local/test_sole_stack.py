"""One deployment to a data directory: the second is refused, a killed one's leavings are cleared away."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from combee.adapters.ports import ConfigurationError
from combee.assembly.local import stack_file as module
from combee.assembly.local.stack_file import sole_stack, stack_file, stack_is_running
from combee.cli.replay import shadow
from combee.cli.shared.console import remark
from combee.process.running import UP
from combee.process.settings.loading import Settings, load_settings
from support.waiting import until

HOLDS = """
import asyncio, sys
from pathlib import Path
from combee.cli.shared.console import remark
from combee.assembly.local.stack_file import sole_stack
from combee.process.running import UP
from combee.process.settings.loading import load_settings

async def hold():
    async with sole_stack(load_settings(), UP, Path(sys.argv[1]), tell=remark) as add:
        add({"http": "http://127.0.0.1:8750"})
        print(flush=True)
        await asyncio.sleep(60)

asyncio.run(hold())
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path / "data"))
    return load_settings()


@pytest.fixture
def other(settings: Settings, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:  # noqa: ARG001
    """Run a process that holds the deployment, as 'combee up' does."""
    (tmp_path / "folder").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / "folder")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


async def test_a_second_deployment_is_refused_with_pid_and_address_of_the_first(
    settings: Settings, other: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    assert stack_is_running(settings)
    with pytest.raises(ConfigurationError) as refused:
        async with sole_stack(settings, UP, tmp_path, tell=remark):
            pass
    told = str(refused.value)
    assert f"combee up (process {other.pid}, http://127.0.0.1:8750)" in told
    assert "\n" not in told
    async with asyncio.timeout(10):  # whoever would wait for a short command does not wait for this one
        with pytest.raises(ConfigurationError, match=f"process {other.pid}"):
            async with sole_stack(settings, "combee learn", tmp_path, wait_s=600, tell=remark):
                pass
    with pytest.raises(ConfigurationError, match=f"process {other.pid}"):
        async with shadow.services(settings, "127.0.0.1:1", ask=False, simulated=False):
            pass
    assert stack_is_running(settings)
    other_prefix = load_settings(topic_prefix="another")
    async with sole_stack(other_prefix, UP, tmp_path, tell=remark):
        assert stack_is_running(other_prefix)


@contextmanager
def sleeping(ready_file: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process as a supervisor would."""
    environment = {**os.environ, "COMBEE_READY_FILE": ready_file}  # noqa: TID251 - a child needs a PATH
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_what_a_killed_deployment_left_behind_is_ended_and_blocks_nothing(
    settings: Settings, other: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    with (
        sleeping(str(tmp_path / "folder" / "scan.ready")) as frozen,
        sleeping("/else/scan.ready") as stranger,
    ):
        frozen.send_signal(signal.SIGSTOP)
        other.kill()
        other.wait()
        assert not stack_is_running(settings)
        assert json.loads(stack_file(settings).read_text())["pid"] == other.pid
        async with sole_stack(settings, UP, tmp_path / "new", tell=remark):
            assert frozen.poll() is not None
            assert not (tmp_path / "folder").exists()
            assert stranger.poll() is None
            assert stack_is_running(settings)
        assert not stack_is_running(settings)
        assert not stack_file(settings).exists()


async def test_a_command_with_services_of_its_own_waits_for_another_and_says_so(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    order = []

    async def second() -> None:
        async with sole_stack(settings, "a combee command", tmp_path, wait_s=20, tell=remark):
            order.append("second")

    async with sole_stack(settings, "combee learn", tmp_path, tell=remark):
        assert not stack_is_running(settings)  # that is 'combee up' alone: this one ends soon
        waiting = asyncio.create_task(second())
        await until(lambda: "waiting for combee learn" in capsys.readouterr().err)
        order.append("first")
    await waiting
    assert order == ["first", "second"]
