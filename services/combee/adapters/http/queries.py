"""Queries to a gateway: each answer is current, each refusal in the gateway's own words."""

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import Field

from combee.adapters.http.errors import check, translated
from combee.adapters.http.gateway import EVERYTHING, client_options, playbook_path, read_answer
from combee_schemas.base import Value
from combee_schemas.playbook import Playbook


class Listed(Value):
    """One playbook in a list."""

    name: str
    version: int
    entries: int
    labels: dict[str, int] = Field(default_factory=dict)


class Page(Value):
    """Some playbooks in the order of their names; ``next`` is the last of them if there are more."""

    playbooks: tuple[Listed, ...]
    next: str | None = None


class ReflectionStatus(Value):
    """The fate of a reflection."""

    state: str
    detail: str = ""
    batch_sequence: int | None = None
    version: int | None = None
    held: str = ""


class GatewayQueries:
    """Asks a gateway with one key.

    Every method raises TransientError (try again), FatalError (look at the address or the key), AbsentError or
    PoisonError (ask for something else).
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, http: httpx.AsyncBaseTransport | None = None
    ) -> None:
        with translated("connecting"):
            self._http = httpx.AsyncClient(**client_options(url, api_key, http))

    async def status(self, api_key: str | None) -> HTTPStatus:
        """Return the status with which the gateway answers a key, or no key; 401: it does not know the key."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        with translated("GET /v1/playbooks"):
            response = await self._http.get("/v1/playbooks", params={"limit": "1"}, headers=headers)
        return HTTPStatus(response.status_code)

    async def playbooks(self, *, after: str | None = None) -> Page:
        """Return the playbooks that the key may see."""
        query = {"limit": "100"} | ({"after": after} if after else {})
        page: Page = await self._read(Page, "/v1/playbooks", query)
        return page

    async def playbook(self, name: str, *, label: str | None = None, version: int | None = None) -> Playbook:
        """Return one version, the newest by default, with proposed entries."""
        chosen = {"label": label, "version": version}
        query = EVERYTHING | {field: str(value) for field, value in chosen.items() if value is not None}
        playbook: Playbook = await self._read(Playbook, playbook_path(name), query)
        return playbook

    async def reflection(self, reflection_id: str, playbook: str) -> ReflectionStatus:
        """Return the fate of a reflection."""
        path = f"/v1/reflections/{quote(reflection_id, safe='')}"
        status: ReflectionStatus = await self._read(ReflectionStatus, path, {"playbook": playbook})
        return status

    async def _read(self, kind: type[Value], path: str, query: dict[str, str]) -> Any:
        with translated(f"GET {path}"):
            response = await self._http.get(path, params=query)
        check(response, f"GET {path}")
        return read_answer(kind, response.content)

    async def close(self) -> None:
        """Drop connections."""
        await self._http.aclose()
