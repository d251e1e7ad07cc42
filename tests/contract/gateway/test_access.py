"""Who may ask the gateway, and for what."""

import base64
import json
from collections.abc import MutableMapping
from typing import Any

from combee.gateway.app import build
from support.gateway import ADMIN, CONFIGURED, READER, WRITER, Asked, asked, bearer, version


async def test_without_a_key_or_with_a_wrong_one_nothing_is_told() -> None:
    async with asked(**CONFIGURED) as gateway:
        await gateway.knows(version("support/refunds", 1))
        for headers in ({}, bearer("x" * 24), bearer(""), {"authorization": "Bearer"}, bearer(READER + " ")):
            for path in ("/v1/playbooks", "/v1/playbooks/support/refunds", "/v1/nothing", "/metrics", "/"):
                answer = await gateway.client.get(path, headers=headers)
                expected = 401 if headers != bearer(READER + " ") else answer.status_code
                assert answer.status_code == expected, path
                assert "refunds" not in answer.text or expected != 401

        answer = await gateway.client.get("/v1/playbooks")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
        assert (await gateway.client.get("/healthz")).status_code == 200
        assert (await gateway.client.get("/readyz")).status_code == 200


async def test_a_scope_opens_what_it_names_and_nothing_else() -> None:
    reflection = {"playbook": "support/refunds", "key_insight": "x"}
    promotion = {"label": "production"}
    async with asked(**CONFIGURED) as gateway:
        await gateway.knows(version("support/refunds", 1))
        expected = {WRITER: (202, 403, 403), READER: (403, 200, 403), ADMIN: (403, 200, 202)}
        for key, statuses in expected.items():
            client, headers = gateway.client, bearer(key)
            found = (
                await client.post("/v1/reflections", json=reflection, headers=headers),
                await client.get("/v1/playbooks/support/refunds", headers=headers),
                await client.post("/v1/playbooks/support/refunds/promote", json=promotion, headers=headers),
            )
            assert tuple(one.status_code for one in found) == statuses


async def test_a_name_space_hides_the_playbooks_of_others() -> None:
    async with asked(**CONFIGURED) as gateway:
        await gateway.knows(version("support/refunds", 1), version("legal/cases", 1))
        headers = bearer(READER)

        answer = await gateway.client.get("/v1/playbooks", headers=headers)
        assert [one["name"] for one in answer.json()["playbooks"]] == ["support/refunds"]
        for path in (
            "legal/cases",
            "legal/none",
            "legal%2Fcases",
            "legal/cases/versions",
            "legal/cases/events",
            "legal/cases/outcomes",
        ):
            assert (await gateway.client.get(f"/v1/playbooks/{path}", headers=headers)).status_code == 403
        assert (await gateway.client.get("/v1/ledger", headers=headers)).status_code == 403
        status = await gateway.client.get("/v1/status", headers=headers)
        assert "support/refunds" in status.text
        assert "legal/cases" not in status.text


async def test_a_key_for_a_playbook_opens_its_branches_and_no_others() -> None:
    namespaces = ["support/refunds"]
    scopes = ["playbooks:read", "playbooks:admin"]
    keys = json.dumps([{"name": "one", "key": READER, "scopes": scopes, "namespaces": namespaces}])
    async with asked(gateway_keys=keys, key=READER) as gateway:
        mine, others = "support/refunds@exp", "support/other@exp"
        await gateway.knows(
            *(version(name, 1) for name in ("support/refunds", mine, "support/other", others))
        )
        expected = {mine: 200, mine.replace("/", "%2F"): 200, others: 403, "support/refunds-x@exp": 403}
        for name, status in expected.items():
            answer = await gateway.client.get(f"/v1/playbooks/{name}")
            assert answer.status_code == status, name
        listed = (await gateway.client.get("/v1/playbooks")).json()["playbooks"]
        assert [each["name"] for each in listed] == ["support/refunds", mine]
        for name, status in {"support/refunds": 202, "support/other": 403}.items():
            asked_for = await gateway.client.post(f"/v1/playbooks/{name}/branch", json={"branch": "own"})
            assert asked_for.status_code == status
        refused = await gateway.client.post(f"/v1/playbooks/{others}/adopt", json={})
        assert refused.status_code == 403


async def test_of_a_batch_only_what_is_in_the_name_space_is_taken() -> None:
    items = [{"playbook": name, "key_insight": "x"} for name in ("support/refunds", "legal/cases")]
    async with asked(**CONFIGURED) as gateway:
        answer = await gateway.client.post("/v1/reflections", json=items, headers=bearer(WRITER))

        assert answer.status_code == 207
        assert [one["status"] for one in answer.json()["items"]] == ["accepted", "refused"]
        assert answer.json()["items"][1]["problem"]["status"] == 403


async def test_browsers_log_in_to_everything_that_is_not_the_api_with_the_key_as_password() -> None:
    async with asked(**CONFIGURED) as gateway:
        asked_for = await gateway.client.get("/metrics")
        assert asked_for.headers["www-authenticate"].startswith("Basic")
        for key, status in ((ADMIN, 200), (READER, 403), ("x" * 20, 401)):
            basic = base64.b64encode(f"me:{key}".encode()).decode()
            answer = await gateway.client.get("/metrics", headers={"authorization": f"Basic {basic}"})
            assert answer.status_code == status
        for page in (
            "/",
            "/batches",
            "/playbook?name=support/refunds",
            "/_nicegui_ws/socket.io/",
            "/v1",
            "//v1/",
        ):
            for key, status in (("", 401), ("x" * 20, 401), (READER, 403), (WRITER, 403)):
                answer = await gateway.client.get(page, auth=("me", key))
                assert answer.status_code == status, page
            assert (
                await gateway.client.get(page, auth=("me", ADMIN))
            ).status_code == 404  # no dashboard here
        broken = await gateway.client.get("/metrics", headers={"authorization": "Basic %"})
        assert broken.status_code == 401


async def test_the_dashboard_is_for_who_may_give_commands_on_all_playbooks() -> None:
    commands = ["playbooks:read", "playbooks:admin"]
    keys = [
        {"name": "agents", "key": READER, "scopes": ["reflections:write", "playbooks:read"]},
        {"name": "one", "key": WRITER, "scopes": commands, "namespaces": ["support"]},
        {"name": "all", "key": ADMIN, "scopes": commands},
    ]
    async with asked(gateway_keys=json.dumps(keys)) as gateway:
        for path in ("/dashboard", "/dashboard/", "/dashboard/_nicegui_ws/socket.io/"):
            # What is let in is not found, as there is no dashboard here.
            for key, status in (("", 401), ("x" * 20, 401), (READER, 403), (WRITER, 403), (ADMIN, 404)):
                assert (await gateway.client.get(path, auth=("me", key))).status_code == status, path
    async with asked() as gateway:
        assert (await gateway.client.get("/dashboard/")).status_code == 404


async def test_a_page_of_another_origin_may_open_no_websocket_and_no_stand_in_for_one() -> None:
    """Without websockets the dashboard's library polls, and answers any origin that it may read the answers."""
    own, foreign, good = "http://127.0.0.1", "https://evil.example", "https://good.example"
    async with asked(gateway_cors_origins=good) as gateway:
        for origin, is_let_in in ((own, True), (good, True), (None, True), (foreign, False), ("null", False)):
            assert await _is_let_in(gateway, origin) is is_let_in, origin
            headers = {"origin": origin} if origin else {}
            answer = await gateway.client.post("/_nicegui_ws/socket.io/", headers=headers)
            assert (answer.status_code != 403) is is_let_in, origin


async def test_a_page_of_another_origin_cannot_open_pages_as_its_images_or_frames() -> None:
    """Each page of the dashboard takes memory, and without keys it is open on loopback."""
    async with asked() as gateway:
        for site, dest, status in (
            ("cross-site", "image", 403),
            ("same-site", "iframe", 403),
            ("cross-site", "document", 404),  # a link; there is no dashboard here
            ("same-origin", "script", 404),
            ("none", "document", 404),
        ):
            headers = {"sec-fetch-site": site, "sec-fetch-dest": dest}
            assert (await gateway.client.get("/dashboard/", headers=headers)).status_code == status, headers


async def _is_let_in(gateway: Asked, origin: str | None) -> bool:
    """Return whether a websocket passes the gate; behind it there is none here, so that it is closed as unknown."""
    headers = [(b"host", b"127.0.0.1"), *([(b"origin", origin.encode())] if origin else [])]
    scope: dict[str, Any] = {
        "type": "websocket",
        "path": "/_nicegui_ws/",
        "raw_path": b"/_nicegui_ws/",
        "root_path": "",
        "scheme": "ws",
        "query_string": b"",
        "headers": headers,
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    said: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    await build(gateway.context)(scope, receive, send)
    assert said
    return all(one.get("status") != 403 for one in said)


async def test_without_keys_only_loopback_names_are_answered() -> None:
    async with asked() as gateway:
        for host, status in (
            ("127.0.0.1:8750", 200),
            ("localhost", 200),
            ("[::1]:1", 200),
            ("evil.example", 421),
            ("evil.example:8750", 421),
            ("127.0.0.1.evil.example", 421),
            ("", 421),
            ("[", 421),
        ):
            answer = await gateway.client.get("/v1/playbooks", headers={"host": host})
            assert answer.status_code == status, host


async def test_a_page_of_another_origin_may_neither_read_nor_post_as_it_could_without_asking() -> None:
    body = '{"playbook": "a", "key_insight": "x"}'
    async with asked() as gateway:
        origin = {"origin": "https://evil.example"}
        answer = await gateway.client.get("/v1/playbooks", headers=origin)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        for kind in ("text/plain", "application/x-www-form-urlencoded", None):
            headers = {**origin, **({"content-type": kind} if kind else {})}
            answer = await gateway.client.post("/v1/reflections", content=body, headers=headers)
            assert answer.status_code == 415
            answer = await gateway.client.post(
                "/v1/playbooks/a/import", content='{"text": "", "format": "ace"}', headers=headers
            )
            assert answer.status_code == 415

    async with asked(gateway_cors_origins="https://good.example, https://better.example") as gateway:
        for name, allowed in (("good", True), ("better", True), ("evil", False)):
            one = f"https://{name}.example"
            answer = await gateway.client.get("/v1/playbooks", headers={"origin": one})
            assert (answer.headers.get("access-control-allow-origin") == one) is allowed
