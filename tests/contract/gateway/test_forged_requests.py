"""Commands that a page of somewhere else makes a browser send, and those of nobody where a judge is on."""

import hashlib
from pathlib import Path
from typing import Any

from combee.assembly.local.admin_key import admin_key
from combee.gateway.access.keys import Caller
from combee.gateway.access.sessions import COOKIE, LINK_MS, SESSION_MS, Sessions
from combee.gateway.endpoints.sessions import LINKS, OPEN, SESSIONS
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.playbook import Label
from support.gateway import Asked, asked, bearer, version
from support.ledger import read_all
from support.rows import each_row
from support.waiting import until

PATH = "/v1/playbooks/support/refunds"
JSON = {"content-type": "application/json"}
EMPTY_BODIES = ("approve", "reject", "adopt", "consolidate", "flush")
KEY = "k" * 32
OPEN_TO_READ = f"""
anybody = ["reflections:write", "playbooks:read"]
[[keys]]
name = "admin"
hash = "sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"
scopes = ["reflections:write", "playbooks:read", "playbooks:admin"]
"""
LESSON = {"playbook": "support/refunds", "key_insight": "Ask for the order number."}


async def commands(gateway: Asked) -> int:
    return sum((await gateway.log.ends(topics.COMMANDS.name)).values())


@each_row("verb", [*EMPTY_BODIES, "promote", "edit", "delete"])
async def test_no_page_of_another_origin_gives_a_command(verb: str) -> None:
    async with asked() as gateway:
        await gateway.knows(version("support/refunds", 1))
        post = gateway.client.post
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            None,
        ):
            headers = {"content-type": kind} if kind else {}
            assert (await post(f"{PATH}/{verb}", headers=headers)).status_code == 415
        for origin in ("https://evil.example", "http://127.0.0.1:3000", "http://localhost", "null"):
            answer = await post(f"{PATH}/{verb}", headers={**JSON, "origin": origin}, content="{}")
            assert (answer.status_code, answer.json()["detail"]) == (403, "a page of another origin")
        assert await commands(gateway) == 0


async def test_its_own_page_a_listed_one_and_what_is_no_page_give_commands() -> None:
    async with asked(gateway_cors_origins="https://good.example") as gateway:
        await gateway.knows(version("support/refunds", 1))
        for origin in ("http://127.0.0.1", "https://good.example", None):
            headers = {**JSON, **({"origin": origin} if origin else {})}
            answer = await gateway.client.post(f"{PATH}/promote", headers=headers, json={"label": "live"})
            assert answer.status_code in (200, 202), answer.text


async def test_a_name_that_was_pointed_at_this_machine_is_no_own_page() -> None:
    rebound = {**JSON, "host": "evil.example:8750", "origin": "http://evil.example:8750"}
    for keys in (None, OPEN_TO_READ):
        async with asked(gateway_keys=keys) as gateway:
            answer = await gateway.client.post(f"{PATH}/flush", headers=rebound, content="{}")
            assert answer.status_code == 421


@each_row(
    "judged", [{"gate": "approve"}, {"gates": {"sales/*": "approve"}}, {}], ids=["gate", "gates", "there"]
)
async def test_where_a_judge_is_on_no_command_passes_without_a_key(judged: dict[str, Any]) -> None:
    async with asked(**judged) as gateway:
        await gateway.knows(version("support/refunds", 1))
        if not judged:
            gate = Label(playbook="support/refunds", label="production", version=1, gate=("approve",))
            await gateway.log.produce(topics.LABELS.record(gate))
            await until(gateway.context.is_judged)
        for verb in (*EMPTY_BODIES, "promote"):
            answer = await gateway.client.post(f"{PATH}/{verb}", json={})
            assert answer.status_code == 403, answer.text
            assert "combee up" in answer.json()["detail"]
            assert "COMBEE_GATEWAY_KEYS_FILE" in answer.json()["detail"]
        assert await commands(gateway) == 0
        assert (await gateway.client.get("/v1/playbooks")).status_code == 200
        assert (await gateway.client.post("/v1/reflections", json=LESSON)).status_code == 202


async def test_with_a_key_for_commands_reading_and_publishing_stay_as_they_were(tmp_path: Path) -> None:
    sources = tmp_path / "sources.toml"
    sources.write_text(f'services_secret = "{KEY}"\n')
    async with asked(gateway_keys=OPEN_TO_READ, gate="approve", sources_file=sources) as gateway:
        await gateway.knows(version("support/refunds", 1))
        client = gateway.client
        assert (await client.get("/v1/playbooks")).status_code == 200
        assert (await client.post("/v1/reflections", json=LESSON)).status_code == 202
        assert (await client.post(f"{PATH}/flush", json={})).status_code == 403
        assert (await client.post(f"{PATH}/flush", json={}, headers=bearer("x" * 32))).status_code == 403
        admin = await client.post(f"{PATH}/promote", json={"label": "live"}, headers=bearer(KEY))
        assert admin.status_code in (200, 202), admin.text
        claimed = {**LESSON, "key_insight": "Mine.", "source": {"name": "key:admin", "proven": "gateway"}}
        await client.post("/v1/reflections", json=claimed)
        await client.post("/v1/reflections", json={**LESSON, "key_insight": "Its."}, headers=bearer(KEY))
        proofs = [record.headers for record in await read_all(gateway.log, topics.REFLECTIONS)]
        assert sorted(map(len, proofs)) == [0, 0, 1], "only what came with a key is vouched for"


async def test_a_link_makes_one_session_for_the_dashboard_alone(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(OPEN_TO_READ)
    async with asked(gateway_keys_file=keys, gate="approve") as gateway:
        client = gateway.client
        for headers in ({}, bearer("x" * 32)):
            assert (await client.post(LINKS, json={}, headers=headers)).status_code == 403
        path = (await client.post(LINKS, json={}, headers=bearer(KEY))).json()["path"]
        page, token = path.split("#")
        assert page == OPEN
        assert token not in (await client.get(page)).text
        forged = await client.post(
            SESSIONS, json={"token": token}, headers={"origin": "https://evil.example"}
        )
        assert forged.status_code == 403
        opened = await client.post(SESSIONS, json={"token": token})
        assert opened.status_code == 204
        cookie = opened.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        for part in ("HttpOnly", "SameSite=strict", "Path=/dashboard"):
            assert part in cookie
        assert (await client.post(SESSIONS, json={"token": token})).status_code == 403
        client.cookies.clear()
        session = {"cookie": cookie.partition(";")[0]}
        for path, headers, status in (
            ("/dashboard/", {}, 401),
            ("/dashboard/", {"cookie": f"{COOKIE}={token}"}, 401),
            ("/dashboard/", session, 404),  # let in; there is no dashboard here
            (LINKS, session, 403),
        ):
            method = "GET" if path == "/dashboard/" else "POST"
            answer = await client.request(method, path, headers={**JSON, **headers})
            assert answer.status_code == status, (path, headers)
        keys.write_text(OPEN_TO_READ.replace('admin"\nhash', 'other"\nhash'))
        assert (await client.get("/dashboard/", headers=session)).status_code == 401


def test_links_and_sessions_end_and_links_open_once() -> None:
    sessions, caller = Sessions(), Caller(name="admin", scopes=frozenset(), digest=b"a")
    late = sessions.link(caller, 0)
    assert sessions.open(late, LINK_MS) is None
    link = sessions.link(caller, 0)
    session = sessions.open(link, 1)
    assert sessions.open(link, 1) is None
    assert session is not None
    cookies = {COOKIE: session}
    assert sessions.of(cookies, SESSION_MS) == caller
    assert sessions.of(cookies, SESSION_MS + 1) is None
    assert sessions.of({COOKIE: link}, 1) is sessions.of({}, 1) is None


def test_the_key_stands_in_a_file_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    key = admin_key(settings)
    assert key.path.parent == tmp_path
    assert key.path.stat().st_mode & 0o777 == 0o600
    assert key.key not in repr(key) + key.gateway_keys
    key.path.chmod(0o644)
    assert admin_key(settings) == key
    assert key.path.stat().st_mode & 0o777 == 0o600
