"""A cluster of real processes, each with its own view of the broker, its own settings and failpoints."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.assembly import backends
from combee.assembly.local.stack import StackOptions, child_environment, model_environment, stack
from combee.assembly.local.supervisor import Process, Supervisor
from combee.process.settings.loading import Settings, load_settings

TESTS = Path(__file__).parents[2]
FAULTY_WORKER = (sys.executable, "-m", "support.failpoints.worker")
ROLES = ("reflect", "shuffle", "scan", "publish")
READY_S = 60.0
STOP_S = 15.0
POLL_S = 0.1
MODEL_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The set-up of a run, before any fault."""

    bootstrap_servers: str
    prefix: str
    folder: Path
    latency: str = "0.15"
    replicas: int = 1
    numbered: bool = True
    """Static members, by slot; else dynamic ones."""
    settings: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables by process name, on top of what all get."""
    failpoints: Mapping[str, str] = field(default_factory=dict)
    """Where a process exits, once, by its name: ``after ask@3`` is the third time it passes that point."""

    def died(self, name: str) -> Path:
        """Return the file that a process makes when it dies at its failpoint."""
        return self.folder / f"{name}.died"

    def load(self) -> Settings:
        chosen = {
            "batch_size": 20,
            "fan_in": 3,
            "copies": 2,
            "max_wait_s": 2.0,
            "llm_concurrency": 8,
            "model_timeout_s": MODEL_TIMEOUT_S,
            **self.settings,
        }
        return load_settings(
            bootstrap_servers=self.bootstrap_servers, topic_prefix=self.prefix, model="simulated", **chosen
        )


@dataclass(slots=True, kw_only=True)
class Cluster:
    """The running processes; the stand-in model has a supervisor of its own and outlives the services."""

    scenario: Scenario
    settings: Settings
    supervisor: Supervisor
    call_log: Path
    base: Mapping[str, str]

    @property
    def model_url(self) -> str:
        """Where the stand-in listens; it outlives the services."""
        return self.base["COMBEE_BASE_URL"].removesuffix("/v1")

    def log(self) -> KafkaLog:
        """Return a new client."""
        return KafkaLog(backends.connection(self.settings, self.scenario.bootstrap_servers))

    def calls(self) -> list[dict[str, Any]]:
        """Return what the stand-in wrote about its calls."""
        if not self.call_log.exists():
            return []
        return [json.loads(line) for line in self.call_log.read_text().splitlines()]

    def names(self, role: str) -> tuple[str, ...]:
        """Return the processes of a service."""
        return tuple(_name(role, slot) for slot in range(self.scenario.replicas))

    async def start_services(self) -> None:
        """Start every replica of every service, and wait until they are ready."""
        self.supervisor = Supervisor(self.supervisor.folder, SystemClock())
        for role in ROLES:
            for slot in range(self.scenario.replicas):
                await self.start(role, slot)
        await self.supervisor.wait_ready(READY_S)
        await self._wait_assigned()

    async def _wait_assigned(self) -> None:
        """Wait until every replica is in its group: calls begun before would be begun again by another one."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.scenario.bootstrap_servers)
        groups = [f"{self.scenario.prefix}.{role}" for role in ROLES]
        await admin.start()
        try:
            async with asyncio.timeout(READY_S):
                while not all([await self._is_assigned(admin, group) for group in groups]):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(POLL_S)
        finally:
            await admin.close()

    async def _is_assigned(self, admin: Any, group: str) -> bool:
        (answer,) = await admin.describe_consumer_groups([group])
        ((_, _, state, _, _, members, *_),) = answer.groups
        return state == "Stable" and len(members) == self.scenario.replicas

    async def stop_services(self) -> None:
        """Stop all of them in good order."""
        await self.supervisor.stop(STOP_S)

    async def start(self, role: str, slot: int) -> None:
        """Start one replica."""
        name = _name(role, slot)
        process = Process(
            name=name,
            arguments=("worker", role, *(("--slot", str(slot)) if self.scenario.numbered else ())),
            env={**self.base, **self.scenario.environment.get(name, {})},
            ready_file=self.supervisor.folder / f"{name}.ready",
        )
        if failpoint := self.scenario.failpoints.get(name):
            process = replace(
                process,
                command=(*FAULTY_WORKER, failpoint, str(self.scenario.died(name))),
                env={**process.env, "PYTHONPATH": str(TESTS)},
            )
        await self.supervisor.start(process)

    def model_faults(self, **faults: float) -> None:
        """Set the stand-in's faults; ``down_for_s`` is one of them."""
        self._ask_model("faults", json.dumps(faults).encode())

    def model_stats(self) -> dict[str, Any]:
        """Return what the stand-in has counted."""
        return self._ask_model("stats", None)

    def _ask_model(self, about: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - our own server on loopback
            f"{self.model_url}/sim/{about}", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - the same
            return dict(json.loads(answer.read() or b"{}"))

    def tails(self) -> str:
        """Return what every process said last."""
        logs = sorted(self.supervisor.folder.glob("*.log"))
        return "\n".join(f"--- {file.stem}\n{self.supervisor.tail(file.stem)}" for file in logs)


def _name(role: str, slot: int) -> str:
    return f"{role}-{slot}" if slot else role


@asynccontextmanager
async def running_cluster(scenario: Scenario) -> AsyncIterator[Cluster]:
    """Create the topics and run every service while the context is open."""
    settings = scenario.load()
    await backends.create_topics(settings, backends.connection(settings, scenario.bootstrap_servers))
    call_log = scenario.folder / "calls.jsonl"
    options = StackOptions(
        settings=settings,
        bootstrap_servers=scenario.bootstrap_servers,
        folder=scenario.folder / "stack",
        simulated=True,
        sim_arguments=("--latency", scenario.latency, "--call-log", str(call_log)),
        roles=(),
    )
    async with stack(options) as sim:
        base = child_environment(options) | {
            "COMBEE_MODEL": "simulated",
            "COMBEE_API_KEY": "simulated",
            "COMBEE_BASE_URL": model_environment(sim)["base_url"],
            # Faults make floods of dead letters on purpose; what limits them has tests of its own.
            "COMBEE_DEAD_LETTERS_PER_MINUTE": "100000",
        }
        cluster = Cluster(scenario=scenario, settings=settings, supervisor=sim, call_log=call_log, base=base)
        try:
            await cluster.start_services()
            yield cluster
        finally:
            await cluster.stop_services()


def patched(folder: Path, source: str) -> dict[str, str]:
    """Return the environment of a process whose interpreter runs these lines first, to take a protection out."""
    code = folder / "code"
    code.mkdir()
    (code / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": str(code)}
