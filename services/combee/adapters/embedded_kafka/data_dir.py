"""Data directories: their places, and the files in them about a cluster and its processes."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from platformdirs import user_cache_path, user_data_path

from combee.adapters.embedded_kafka.ports import NodePorts

VERSION = "4.3.1"
CLUSTER_FILE = "cluster.json"
RUN_FILE = "run.json"


def default_cache_dir() -> Path:
    """Return the user's cache folder for the broker's jars."""
    return user_cache_path("combee") / f"kafka-{VERSION}"


def home_dir() -> Path:
    """Return the user's one data directory, which all commands share."""
    return user_data_path("combee") / "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The cluster that a data directory holds."""

    cluster_id: str
    ports: tuple[NodePorts, ...]

    def save(self, data_dir: Path) -> None:
        """Save it for later starts."""
        _write(data_dir / CLUSTER_FILE, asdict(self))

    @classmethod
    def load(cls, data_dir: Path) -> Self | None:
        """Return the cluster in this directory; None if it is new, or the file is damaged."""
        content = _read(data_dir / CLUSTER_FILE)
        try:
            ports = tuple(NodePorts(**pair) for pair in content["ports"])
            return cls(cluster_id=str(content["cluster_id"]), ports=ports)
        except (KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The processes that run a data directory now; ``pids`` by node."""

    address: str
    pids: Mapping[int, int]

    def save(self, data_dir: Path) -> None:
        """Write the run file."""
        _write(data_dir / RUN_FILE, {"address": self.address, "pids": dict(self.pids)})

    @classmethod
    def load(cls, data_dir: Path) -> Self | None:
        """Return the content of the run file; None without a readable one."""
        content = _read(data_dir / RUN_FILE)
        try:
            return cls(
                address=str(content["address"]),
                pids={int(node): int(pid) for node, pid in content["pids"].items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    @staticmethod
    def remove(data_dir: Path) -> None:
        """Delete the run file."""
        (data_dir / RUN_FILE).unlink(missing_ok=True)


def new_cluster_id() -> str:
    """Return a cluster id as Kafka writes them: 16 bytes in URL-safe base 64."""
    raw = bytearray(uuid4().bytes)
    # A leading dash would be read as an option on the command line.
    raw[0] &= 0x7F
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _write(path: Path, content: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    partial.replace(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
