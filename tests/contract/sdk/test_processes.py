"""Programs that use the SDK as many do: they forget to close, or fork."""

import subprocess
import sys


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_program_that_forgets_to_close_still_delivers() -> None:
    code = """
from combee import Client, MemoryTransport
class Saying(MemoryTransport):
    async def send(self, messages):
        await super().send(messages)
        print(len(self.reflections), flush=True)
memory = Saying()
Client(transport=lambda: memory).publish(playbook="a/b", key_insight="x")
"""
    assert run(code).stdout.split() == ["1"]


def test_a_forked_process_has_a_connection_of_its_own() -> None:
    code = """
import os, sys
from combee import Client, MemoryTransport
made = []
def connect():
    made.append(MemoryTransport())
    return made[-1]
client = Client(transport=connect)
client.publish(playbook="a/b", key_insight="parent")
client.flush()
child = os.fork()
client.publish(playbook="a/b", key_insight="child" if child == 0 else "parent again")
client.flush()
print([one.key_insight for one in made[-1].reflections], flush=True)
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    assert sorted(run(code).stdout.splitlines()) == ["['child']", "['parent', 'parent again']"]
