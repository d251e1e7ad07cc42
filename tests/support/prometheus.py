"""Prometheus itself: the one on the PATH, else Debian's package, unpacked in the user's cache and not installed."""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import yaml
from platformdirs import user_cache_path

from combee.assembly.local.ports import metrics_ports
from support.monitoring import ALERTS
from support.waiting import wait_until

HOST = "127.0.0.1"
START_S = 60.0
EVERY = "1s"


class NoPrometheusError(RuntimeError):
    """There is none, and none can be fetched."""


def program(name: str) -> Path:
    """Return ``prometheus`` or ``promtool``."""
    if installed := shutil.which(name):
        return Path(installed)
    cached = user_cache_path("combee") / "tools" / "debian-prometheus" / "usr" / "bin"
    if not cached.is_dir():
        _unpack(cached.parent.parent)
    return cached / name


def _unpack(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise NoPrometheusError(
            "there is no Prometheus on the PATH, and this is no Debian to fetch its package from"
        )
    with TemporaryDirectory(prefix="combee-prometheus-") as scratch:
        unpacked = Path(scratch) / "unpacked"
        _run("apt-get", "-q", "download", "prometheus", cwd=scratch)
        (package,) = Path(scratch).glob("prometheus_*.deb")
        _run("dpkg-deb", "--extract", str(package), str(unpacked), cwd=scratch)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked, folder)


def _run(*command: str, cwd: str) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise NoPrometheusError(f"Prometheus cannot be fetched: {command[0]}: {said}")


def documented_scrape() -> dict[str, Any]:
    """Return the scrape configuration that the head of alerts.yml shows."""
    head = ALERTS.read_text("utf-8").partition("\ngroups:")[0]
    lines = [line.removeprefix("#").removeprefix("   ") for line in head.splitlines()]
    (job,) = yaml.safe_load("\n".join(lines[lines.index("scrape_configs:") :]))["scrape_configs"]
    return dict(job)


def page(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - an address of loopback
        return bytes(answer.read())


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running one, and what it answers over HTTP."""

    address: str

    def get(self, path: str, **parameters: str) -> Any:
        return json.loads(page(f"{self.address}/api/v1/{path}?{urlencode(parameters)}"))["data"]

    def values(self, expression: str) -> list[float]:
        """Return what an expression comes to now."""
        return [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]

    def targets(self) -> list[dict[str, Any]]:
        return list(self.get("targets")["activeTargets"])

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def alerts(self, state: str) -> set[str]:
        """Return alerts that are ``pending`` or ``firing``, with the process they are about."""
        return {
            f"{alert['labels']['alertname']} {alert['labels'].get('instance', '')}".strip()
            for alert in self.get("alerts")["alerts"]
            if alert["state"] == state
        }


@contextmanager
def prometheus(folder: Path, addresses: Sequence[str], labels: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run a Prometheus with our rules, and with the documented scrape configuration for these addresses."""
    (port,) = metrics_ports(0, HOST, 1)
    server = Prometheus(f"http://{HOST}:{port}")
    targets = [address.removeprefix("http://") for address in addresses]
    job = {**documented_scrape(), "static_configs": [{"targets": targets, "labels": dict(labels)}]}
    settings = {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [job],
    }
    folder.mkdir()
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(settings), "utf-8")
    options = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
    listen = f"--web.listen-address={HOST}:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program("prometheus"), *options, listen], stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or _is_ready(server), START_S, "Prometheus")
        assert process.poll() is None, (folder / "log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(server: Prometheus) -> bool:
    try:
        return bool(page(f"{server.address}/-/ready"))
    except OSError:
        return False
