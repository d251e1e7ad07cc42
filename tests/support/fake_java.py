"""A stand-in for Java: a script that formats, listens and fails as told, in milliseconds."""

import sys
import textwrap
from pathlib import Path

from combee.adapters.embedded_kafka.java import Java
from combee.adapters.embedded_kafka.jvm import ClassDataArchive, Jvm

SCRIPT = """\
#!{python} -IS
import pathlib, socket, sys

if "-version" in sys.argv:
    sys.exit('openjdk version "21.0.1"')
lines = pathlib.Path(sys.argv[-1]).read_text().splitlines()
properties = dict(line.split("=", 1) for line in lines)
if "kafka.tools.StorageTool" in sys.argv:
    if properties.get("fake.format"):
        sys.exit(properties["fake.format"])
    logs = pathlib.Path(properties["log.dirs"])
    logs.mkdir(exist_ok=True)
    (logs / "meta.properties").touch()
    sys.exit()
if properties.get("fake.start"):
    sys.exit(properties["fake.start"])
address = properties["advertised.listeners"].removeprefix("PLAINTEXT://").split(":")
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address[0], int(address[1])))
listener.listen()
while True:
    listener.accept()
"""


def fake_java(folder: Path) -> Java:
    folder.mkdir(parents=True, exist_ok=True)
    path = script(folder / "java", SCRIPT.format(python=sys.executable))
    return Java(path=path, banner='version "21.0.1"')


def fake_jvm(folder: Path) -> Jvm:
    java = fake_java(folder)
    archive = ClassDataArchive(folder=folder / "archives", java=java, jars=())
    return Jvm(java=java, jars=(), archive=archive, benchmark=True, env={})


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    path.chmod(0o700)
    return path
