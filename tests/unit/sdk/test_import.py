"""What importing the SDK brings along, and that nothing else has to be installed."""

import subprocess
import sys

import pytest

import combee

UNWANTED = ("faust", "openai", "structlog", "pydantic_settings", "fastapi", "httpx", "rapidfuzz", "stamina")

ALONE = """
import sys
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


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_sdk_loads_no_service_and_no_framework() -> None:
    code = "from combee import Client, learning, wrap_openai; Client('127.0.0.1:1');"
    done = run(f"{code}\nimport sys; print(*sorted(set(sys.modules) & set({UNWANTED!r})))")
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_importing_the_package_alone_loads_no_library() -> None:
    done = run("import combee, sys; print(*{'pydantic', 'aiokafka', 'combee.sdk'} & set(sys.modules))")
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_with_its_three_libraries_only_the_sdk_works_and_a_gateway_address_names_the_remedy() -> None:
    done = run(ALONE + USE + "print('works')\nClient('http://127.0.0.1:1')")
    assert done.stdout.split() == ["works"]
    assert "pip install 'combee[http]'" in done.stderr


def test_a_name_that_is_not_there_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        _ = combee.Klient
