"""Commands over HTTP: what the command line can do to a playbook, an operator's program can, too."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from combee.gateway.endpoints.commands import MAX_VALUES
from combee.gateway.endpoints.sessions import SESSIONS
from combee_schemas.plan import Branch, BranchSettings
from support.gateway import Asked, asked, publishing, version

PATH = "/v1/playbooks/support/refunds"
ACE = "## OTHERS\n[misc-00001] helpful=1 harmful=0 :: ask for the receipt\n"


@asynccontextmanager
async def running() -> AsyncIterator[Asked]:
    """Yield a gateway beside a publish service."""
    async with asked() as gateway, publishing(gateway.log):
        yield gateway


async def done(gateway: Asked, verb: str, **body: Any) -> dict[str, Any]:
    answer = await gateway.client.post(f"{PATH}/{verb}?wait_s=10", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["done"]
    return found


async def content(gateway: Asked, query: str = "") -> list[str]:
    return [entry["content"] for entry in (await gateway.client.get(PATH + query)).json()["entries"]]


async def test_a_person_keeps_what_is_only_proposed() -> None:
    book = {"entries": [{"id": "misc-00001", "section": "OTHERS", "content": "perhaps", "state": "proposed"}]}
    async with running() as gateway:
        await done(gateway, "import", text=json.dumps(book), format="json")
        assert await content(gateway) == []
        assert (await done(gateway, "keep", entry_ids=["misc-00001"]))["version"] == 2
        assert await content(gateway) == ["perhaps"]
        assert not (await done(gateway, "keep", entry_ids=["misc-00001"]))["changed"]
        unknown = await gateway.client.post(f"{PATH}/keep", json={"entry_ids": ["misc-00002"]})
        assert unknown.status_code == 404


@pytest.mark.parametrize("path", [f"{PATH}/flush", SESSIONS])
async def test_a_body_of_too_many_values_is_refused_before_they_are_checked(path: str) -> None:
    """A name of three bytes that is unknown took eight kilobytes to report."""
    body = {f"{number:x}": 0 for number in range(MAX_VALUES + 1)}
    async with asked() as gateway:
        answer = await gateway.client.post(path, json=body)
    assert answer.status_code == 413
    assert "at most 5000 values" in answer.json()["detail"]


async def test_a_playbook_is_paused_and_goes_on_over_http() -> None:
    async with running() as gateway:
        await done(gateway, "import", text=ACE, format="ace")
        assert await done(gateway, "pause", until="2100-01-01") == {
            **await done(gateway, "pause"),
            "changed": True,
            "command_id": ANY,
        }
        assert not (await done(gateway, "pause"))["changed"]
        assert (await done(gateway, "resume"))["version"] == 3
        assert not (await done(gateway, "resume"))["changed"]
        assert await content(gateway) == ["ask for the receipt"]
        for until in ("2001-01-01", "soon"):
            refused = await gateway.client.post(f"{PATH}/pause", json={"until": until})
            assert refused.status_code == 400, refused.text


async def test_a_command_without_waiting_is_acknowledged() -> None:
    async with asked() as gateway:
        answer = await gateway.client.post(f"{PATH}/import", json={"text": ACE, "format": "ace"})
        assert answer.status_code == 202
        assert answer.json() == {**answer.json(), "done": False, "version": None}


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("revoke", {"rules": ["source:\ud800"]}, 404),
        ("revoke", {"rules": ["text:\ud800"]}, 404),
        ("branch", {"branch": "exp", "settings": {"\ud800": 1}}, 400),
        ("flush", {"\ud800": 1}, 422),
    ],
)
async def test_a_refusal_may_quote_half_of_a_surrogate_pair(
    verb: str, body: dict[str, Any], status: int
) -> None:
    async with asked() as gateway:
        await gateway.knows(version("support/refunds", 1))
        answer = await gateway.client.post(
            f"{PATH}/{verb}", content=json.dumps(body), headers={"content-type": "application/json"}
        )
    assert answer.status_code == status, answer.text


async def test_what_cannot_be_done_is_refused_with_its_reason() -> None:
    async with running() as gateway:
        unknown: list[tuple[str, Any]] = [
            ("promote", {"label": "production"}),
            ("rollback", {"version": 1}),
            ("edit", {"text": "# x"}),
            ("revoke", {"reflection_ids": ["r1"]}),
            ("delete", {}),
        ]
        for verb, body in unknown:
            assert (await gateway.client.post(f"{PATH}/{verb}", json=body)).status_code == 404
        await done(gateway, "import", text=ACE, format="ace")
        wrong: list[tuple[str, Any, int]] = [
            ("promote", {"label": "production", "version": 7}, 404),
            ("promote", {"label": "latest"}, 409),
            ("promote", {"label": "no label"}, 422),
            ("promote", {"label": "production", "versoin": 1}, 422),
            ("rollback", {"version": 7}, 404),
            ("edit", {"text": "no playbook"}, 400),
            ("import", {"text": "no playbook", "format": "ace"}, 400),
        ]
        for verb, body, status in wrong:
            answer = await gateway.client.post(f"{PATH}/{verb}", json=body)
            assert (answer.status_code, answer.json()["status"]) == (status, status), (verb, body)


async def test_a_branch_is_listed_with_what_it_does_otherwise_and_pages_go_on_behind_it() -> None:
    own = Branch(of="support/refunds", version=1, sequence=0, settings=BranchSettings(batch_size=5))
    async with asked() as gateway:
        line = version("support/refunds@exp", 1, branch=own)
        await gateway.knows(version("support/refunds", 1), line, version("support/zoo", 1))
        page = (await gateway.client.get("/v1/playbooks?limit=2")).json()
        assert [each["name"] for each in page["playbooks"]] == ["support/refunds", "support/refunds@exp"]
        assert [
            each["branch"] and each["branch"]["settings"]["batch_size"] for each in page["playbooks"]
        ] == [
            *(None, 5),
        ]
        rest = (await gateway.client.get("/v1/playbooks", params={"after": page["next"]})).json()
        assert [each["name"] for each in rest["playbooks"]] == ["support/zoo"]


@pytest.mark.parametrize("branch", ["", "a b", "x" * 41])
async def test_a_name_that_no_branch_has_is_refused_by_the_document(branch: str) -> None:
    async with asked() as gateway:
        await gateway.knows(version("support/refunds", 1))
        answer = await gateway.client.post(f"{PATH}/branch", json={"branch": branch})
        assert answer.status_code == 422
        nested = await gateway.client.post(f"{PATH}@x/branch", json={"branch": "y"})
        assert (nested.status_code, nested.json()["detail"]) == (
            409,
            "support/refunds@x is a branch itself: make the branch of support/refunds",
        )


@pytest.mark.parametrize(
    ("verb", "body", "advice"),
    [
        ("promote", {"label": "production", "verison": 1}, "did you mean version?"),
        ("rollback", {"version": 1, "commandid": "c"}, "did you mean command_id?"),
        ("revoke", {"reflection_ids": ["r"], "reflectionids": []}, "did you mean reflection_ids?"),
        ("delete", {"force": True}, "known are command_id"),
    ],
)
async def test_an_unknown_field_of_a_command_is_refused_with_the_nearest_known_one(
    verb: str, body: dict[str, Any], advice: str
) -> None:
    async with asked() as gateway:
        await gateway.knows(version("support/refunds", 1))
        answer = await gateway.client.post(f"{PATH}/{verb}", json=body)
        assert answer.status_code == 422
        where = f"body.{next(reversed(body))}"
        assert answer.json()["errors"] == [{"where": where, "detail": f"unknown field; {advice}"}]
        assert f"{where}: unknown field; {advice}" in answer.json()["detail"]
