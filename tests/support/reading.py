"""Reading verbs on an in-memory log that real services have written."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing
from combee.assembly.local import log as local_log
from combee.assembly.local import publisher
from combee.cli.__main__ import app
from combee.process.settings.loading import Settings
from combee_schemas.topics import TOPICS, AnyTopic
from support import ledger
from support.deployment import Deployment
from support.ledger import outgoing, reflection

COUNT = 20


async def _learned() -> Deployment:
    deployment = Deployment(batch_size=10)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return deployment


def learned_from(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment that has learned from 20 reflections in two batches and stopped; verbs read it."""
    deployment = copied(_learned_once())
    use_log(monkeypatch, deployment.log)
    return deployment


@cache
def _learned_once() -> Deployment:
    """Return what nobody may change: learning takes longer than most tests."""
    return asyncio.run(_learned())


def copied(original: Deployment) -> Deployment:
    """Return a deployment of its own with the same records and places."""
    copy = Deployment(partitions=original.partitions, batch_size=original.settings.batch_size)
    there = copy.log._store
    for topic in TOPICS:
        for mine, known in zip(
            there.partitions(topic.name), original.log._store.partitions(topic.name), strict=True
        ):
            mine.first, mine.slots = known.first, list(known.slots)
    there.committed = {group: dict(places) for group, places in original.log._store.committed.items()}
    return copy


def use_log(monkeypatch: pytest.MonkeyPatch, log: MemoryLog) -> None:
    """Let every verb work on this log."""

    @asynccontextmanager
    async def open_log(_: Settings, _notices: Any, *, create: bool) -> AsyncIterator[tuple[Any, str]]:  # noqa: ARG001
        yield log, "memory"

    @asynccontextmanager
    async def open_unchecked(_: Settings, _servers: str) -> AsyncIterator[Any]:
        yield log

    async def brokers(_: Settings, servers: str) -> str:
        return servers

    monkeypatch.setattr(local_log, "open_log", open_log)
    monkeypatch.setattr(local_log, "open_unchecked", open_unchecked)
    monkeypatch.setattr(local_log, "brokers", brokers)


def publish_with(monkeypatch: pytest.MonkeyPatch, deployment: Deployment, *roles: str) -> None:
    """Let publish, or other services, run on this deployment whenever a verb needs it."""

    @asynccontextmanager
    async def ensure_publisher(*_: Any) -> AsyncIterator[None]:
        quiet = structlog.make_filtering_bound_logger(logging.ERROR)
        structlog.configure(wrapper_class=quiet)  # a process of its own has an output of its own
        deployment.log._store.notify()  # a fresh event: the old one belongs to the loop of the verb before
        async with deployment.running(roles or ["publish"]):
            yield

    monkeypatch.setattr(publisher, "ensure_publisher", ensure_publisher)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run a verb."""
    try:
        return CliRunner().invoke(app, list(arguments), input=stdin)
    finally:
        structlog.reset_defaults()  # a verb's logs go to the runner's standard error, which is closed now


def run_json(*arguments: str, code: int = 0) -> Any:
    """Run a verb with --json: one document, nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def put(deployment: Deployment, topic: AnyTopic, key: str, value: bytes | None) -> None:
    """Write a record."""
    asyncio.run(deployment.log.produce(Outgoing(topic=topic.name, key=key.encode(), value=value)))
