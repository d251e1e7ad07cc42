"""Each route's right in one table: what callers without it ask is refused, and writes nothing."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from combee.dashboard.mount import mount
from combee.gateway.access.sessions import COOKIE
from combee.gateway.app import build
from combee.gateway.context import Context
from support.gateway import Asked, asked, bearer, version

NAME, OTHERS = "support/refunds", "legal/cases"
LINE = f"/v1/playbooks/{NAME}"
TEXT = "## OTHERS\n[misc-00001] helpful=0 harmful=0 :: Ask for the date."
EDITED = f"# {NAME} (version 2)\n\n## OTHERS\n\n- `misc-00001` Ask for the date."
SPANS: dict[str, Any] = {"resourceSpans": []}
OPEN, PUBLISH, READ, COMMAND = "open", "reflections:write", "playbooks:read", "playbooks:admin"
ANY_KEY, READ_ALL, LINK, DASHBOARD = "any key", "read all", "link", "dashboard"
BELOW = "/v1/playbooks/{name:playbook}"
RIGHTS: Mapping[str, tuple[str, str, Any]] = {
    "GET /openapi.json": (OPEN, "/openapi.json", None),
    "HEAD /openapi.json": (OPEN, "/openapi.json", None),
    "GET /healthz": (OPEN, "/healthz", None),
    "GET /readyz": (OPEN, "/readyz", None),
    "POST /v1/traces": (PUBLISH, "/v1/traces", {"playbook": NAME, "task": "t", "answer": "a"}),
    "POST /v1/reflections": (PUBLISH, "/v1/reflections", {"playbook": NAME, "key_insight": "x"}),
    "POST /v1/outcomes": (PUBLISH, "/v1/outcomes", {"playbook": NAME, "run_id": "r", "success": True}),
    "POST /v1/otlp/v1/traces": (PUBLISH, "/v1/otlp/v1/traces", SPANS),
    "GET /v1/reflections/{reflection_id:path}": (READ, f"/v1/reflections/r-1?playbook={NAME}", None),
    "GET /v1/playbooks": (READ, "/v1/playbooks", None),
    "GET /v1/playbooks/{name:whole}": (READ, LINE, None),
    f"GET {BELOW}/events": (READ, f"{LINE}/events", None),
    f"GET {BELOW}/versions": (READ, f"{LINE}/versions", None),
    f"GET {BELOW}/diff": (READ, f"{LINE}/diff?from=1&to=2", None),
    f"GET {BELOW}/outcomes": (READ, f"{LINE}/outcomes", None),
    f"GET {BELOW}/candidate": (READ, f"{LINE}/candidate", None),
    "GET /v1/status": (READ, "/v1/status", None),
    "GET /v1/batches/{batch_id}": (READ, "/v1/batches/b-1", None),
    "GET /v1/ledger": (READ_ALL, "/v1/ledger", None),
    "GET /metrics": (READ_ALL, "/metrics", None),
    "GET /": (READ_ALL, "/", None),
    "GET /open": (READ_ALL, "/open", None),
    "POST /v1/session-links": (LINK, "/v1/session-links", {}),
    "POST /v1/sessions": (ANY_KEY, "/v1/sessions", {"token": "x"}),
    "ANY /dashboard": (DASHBOARD, "/dashboard/", None),
} | {
    f"POST {BELOW}/{verb}": (COMMAND, f"{LINE}{line}/{verb}", body)
    for verb, line, body in (
        ("promote", "", {"label": "production"}),
        ("approve", "", {}),
        ("reject", "", {"reason": "no"}),
        ("rollback", "", {"version": 1}),
        ("edit", "", {"text": EDITED}),
        ("keep", "", {"entry_ids": ["misc-00001"]}),
        ("import", "", {"text": TEXT, "format": "ace"}),
        ("revoke", "", {"rules": ["source:shop"]}),
        ("pause", "", {}),
        ("resume", "", {}),
        ("delete", "", {}),
        ("branch", "", {"branch": "exp"}),
        ("adopt", "@exp", {}),
        ("consolidate", "", {}),
        ("flush", "", {}),
    )
}
"""Right, path and body of a request, by route."""
HIDDEN = frozenset({"GET /v1/playbooks", "GET /v1/status", "GET /v1/batches/{batch_id}"})
"""Routes that show a caller with other name spaces less, instead of refusing."""
SCOPES = (PUBLISH, READ, COMMAND)
CALLERS = {
    f"{'' if namespace else 'all '}{'+'.join(scopes)} {namespace}".strip(): (scopes, namespace)
    for scopes in ((PUBLISH,), (READ,), (COMMAND,), (READ, COMMAND), SCOPES)
    for namespace in ("", "support/", "legal/")
}
"""Scopes and name space of each key, by its name."""


def key_of(caller: str) -> str:
    return caller.replace(" ", "-").ljust(24, "k")


KEYS = json.dumps(
    [
        {"name": name, "key": key_of(name), "scopes": scopes} | ({"namespaces": [space]} if space else {})
        for name, (scopes, space) in CALLERS.items()
    ]
)


def mounted(context: Context) -> FastAPI:
    app = build(context)
    mount(app, context)
    return app


def may(route: str, scopes: tuple[str, ...], namespace: str) -> bool:
    """Return whether a key has the right of a route; the requests are about a playbook below ``support/``."""
    right, sees_all = RIGHTS[route][0], not namespace
    if right in SCOPES:
        return right in scopes and (namespace != "legal/" or route in HIDDEN or "otlp" in route)
    if right in {READ_ALL, DASHBOARD}:
        return sees_all and (READ if right == READ_ALL else COMMAND) in scopes
    return right != LINK or COMMAND in scopes


@asynccontextmanager
async def gateway(**settings: Any) -> AsyncIterator[Asked]:
    async with asked(**settings) as known:
        await known.knows(
            version(NAME, 1), version(NAME, 2, "Ask."), version(f"{NAME}@exp", 1), version(OTHERS, 1)
        )
        known.context.stopping.set()  # streams end after what they have
        yield known


def refuses(answer: httpx.Response) -> bool:
    """Return whether an answer says that the caller has no right; an invented link is refused for itself."""
    return answer.status_code in {401, 403} and "This link" not in answer.text


async def answered(known: Asked, route: str, headers: Mapping[str, str]) -> tuple[httpx.Response, bool]:
    """Return the answer to a route's request, and whether anything was written."""
    _, path, body = RIGHTS[route]
    method = route.split(maxsplit=1)[0].replace("ANY", "GET")
    topics = ("traces", "reflections", "outcomes", "commands")
    ends = [await known.log.ends(topic) for topic in topics]
    answer = await known.client.request(method, path, json=body, headers=headers)
    return answer, ends != [await known.log.ends(topic) for topic in topics]


async def test_the_table_has_every_route() -> None:
    async with asked() as known:
        routes = [found.route for found in iter_route_contexts(mounted(known.context).routes)]
        names = {
            f"{method} {route.path}"  # type: ignore[attr-defined]  # every route here has a path
            for route in routes
            for method in getattr(route, "methods", None) or {"ANY"}
        }
    assert names == RIGHTS.keys()


async def test_a_key_may_do_what_its_right_says_and_nothing_else() -> None:
    async with gateway(gateway_keys=KEYS, failed_keys=1000) as known:
        for route, (right, *_) in RIGHTS.items():
            for headers in ({}, bearer("x" * 24), {"cookie": f"{COOKIE}=x"}):
                answer, wrote = await answered(known, route, headers)
                assert (answer.status_code == 401) is (right != OPEN), route
                assert not wrote
            for caller, (scopes, namespace) in CALLERS.items():
                answer, wrote = await answered(known, route, bearer(key_of(caller)))
                assert refuses(answer) is not may(route, scopes, namespace), (route, caller, answer.text)
                assert not (refuses(answer) and wrote), (route, caller)
                if namespace == "legal/" and right != OPEN:
                    assert refuses(answer) or NAME not in answer.text, (route, caller)


@pytest.mark.parametrize(
    ("settings", "may_command"),
    [
        ({"trust": "team"}, True),
        ({"trust": "lab"}, True),
        ({"trust": "public"}, False),
        ({"trust": "public", "gate": "off"}, False),
        ({"trust": "team", "gate": "approve"}, False),
        ({"trust": "lab", "gate": "evaluate"}, False),
    ],
)
async def test_without_keys_everybody_may_all_but_command_where_a_judge_is_on(
    settings: dict[str, str], *, may_command: bool
) -> None:
    async with gateway(**settings) as known:
        for route, (right, *_) in RIGHTS.items():
            if right == DASHBOARD:
                continue  # its commands ask for a key each
            answer, wrote = await answered(known, route, {})
            needs_key = right == LINK or (right == COMMAND and not may_command)
            assert refuses(answer) is needs_key, (route, answer.text)
            assert not (refuses(answer) and wrote), route
