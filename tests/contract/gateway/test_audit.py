"""Who did what: the access log, commands and versions that name who asked, and what browsers are told."""

from typing import Any

import httpx
import pytest
import structlog

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee_schemas import topics
from support.gateway import ADMIN, CONFIGURED, READER, asked, bearer, published, publishing, served, version
from support.ledger import read_all
from support.waiting import until

PATH = "/v1/playbooks/support/refunds"
ACE = "## OTHERS\n[misc-00001] helpful=1 harmful=0 :: ask for the receipt\n"
SECRET = "what-nobody-may-read-in-a-log"  # noqa: S105 - of this test


def told(lines: list[Any], *events: str) -> list[Any]:
    return [line for line in lines if line["event"] in events]


async def test_every_request_is_one_line_with_the_name_of_its_key_and_no_secret() -> None:
    with structlog.testing.capture_logs() as lines:
        async with asked(**CONFIGURED) as gateway:
            await gateway.knows(version("support/refunds", 1))
            client = gateway.client
            await client.get(f"{PATH}?label={SECRET}", headers=bearer(READER))
            await client.post(f"{PATH}/promote", json={"label": SECRET}, headers=bearer(READER))
            await client.get("/v1/playbooks/%1B%5B2Jx", headers=bearer(ADMIN))
            await client.get("/healthz")
            await client.get("/dashboard/_nicegui/x.js", headers=bearer(ADMIN))
            await client.get("/v1/playbooks/a/_nicegui/x", headers=bearer(ADMIN))
            await client.get(PATH, headers=bearer("x" * 20))
    requests = told(lines, "request")
    assert [(one["method"], one["path"], one["status"], one["key"]) for one in requests] == [
        ("GET", PATH, 404, "readers"),
        ("POST", f"{PATH}/promote", 403, "readers"),
        ("GET", "/v1/playbooks/%1B%5B2Jx", 422, "operators"),
        ("GET", "/healthz", 200, ""),
        ("GET", "/dashboard/_nicegui/x.js", 404, "operators"),
        ("GET", "/v1/playbooks/a/_nicegui/x", 422, "operators"),
    ]
    assert [one["log_level"] for one in requests] == ["info", "info", "info", "debug", "debug", "info"]
    assert all(one["ms"] >= 0 for one in requests)
    for secret in (SECRET, READER, ADMIN, "x" * 20):
        assert secret not in str(lines)


async def test_a_stream_is_told_when_it_opens_and_when_it_closes() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version("support/refunds", 1))
    with structlog.testing.capture_logs() as lines:
        async with served(log, **CONFIGURED) as (address, _), httpx.AsyncClient(base_url=address) as client:
            async with client.stream("GET", f"{PATH}/events", headers=bearer(READER)) as stream:
                await anext(stream.aiter_lines())
                (opened,) = told(lines, "stream_opened", "stream_closed", "request")
                assert (opened["event"], opened["key"], opened["path"]) == (
                    "stream_opened",
                    "readers",
                    f"{PATH}/events",
                )
            await until(lambda: bool(told(lines, "stream_closed")))
    (closed,) = told(lines, "stream_closed")
    assert (closed["key"], closed["status"]) == ("readers", 200)
    assert told(lines, "request") == []


async def test_a_command_and_the_version_and_label_it_makes_say_whose_key_it_was() -> None:
    async with asked(key=ADMIN, **CONFIGURED) as gateway, publishing(gateway.log):
        for verb, body in (
            ("import", {"text": ACE, "format": "ace"}),
            ("promote", {"label": "production", "issued_by": "somebody else"}),
            ("promote", {"label": "production"}),
        ):
            answer = await gateway.client.post(f"{PATH}/{verb}?wait_s=10", json=body)
            assert answer.status_code == (422 if "issued_by" in body else 200), answer.text
        found = (await gateway.client.get(f"{PATH}/versions")).json()["versions"]
        assert [one["issued_by"] for one in found] == ["key:operators"]
        label = gateway.context.labels.get("support/refunds#production")
        assert label is not None
        assert label.issued_by == "key:operators"
        commands = [topics.COMMANDS.read(record) for record in await read_all(gateway.log, topics.COMMANDS)]
    assert [one.issued_by for one in commands] == ["key:operators"] * 2


async def test_every_answer_tells_browsers_to_frame_guess_and_run_nothing() -> None:
    async with asked(**CONFIGURED) as gateway:
        for path in (PATH, "/healthz", "/nothing", "/openapi.json", "/v1/playbooks"):
            for key in ("", ADMIN):
                headers = (await gateway.client.get(path, headers=bearer(key))).headers
                assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
                assert headers["x-frame-options"] == "DENY"
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["referrer-policy"] == "no-referrer"


async def test_a_request_that_fails_in_an_unforeseen_way_is_told_as_a_500(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    with structlog.testing.capture_logs() as lines:
        async with asked() as gateway:
            monkeypatch.setattr(gateway.context.log, "produce", broken)
            answer = await gateway.client.post("/v1/reflections", json={"playbook": "p", "key_insight": "k"})
    assert answer.status_code == 500
    assert [one["status"] for one in told(lines, "request")] == [500]
