"""Commands to a deployment's gateway, and the fate of reflections, for tools that wait for an effect."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from combee.adapters.http.errors import check, translated
from combee.adapters.http.gateway import client_options
from combee.adapters.http.queries import ReflectionStatus
from combee.adapters.ports import ConfigurationError, PoisonError, TransientError
from combee_schemas.base import Value

MAX_WAIT_S = 60
"""Maximum seconds that the gateway waits for a command's effect."""
LOOK_EVERY_S = 0.25
HELD_S = 5.0
"""Seconds before a reported hold is believed: the gateway's settings may differ from the services'."""
FATES = frozenset({"applied", "dead_lettered", "dropped"})


class CommandEffect(Value):
    """The gateway's answer to a command."""

    done: bool = False
    version: int | None = None


class GatewayCommands:
    """Sends commands and waits for their effects."""

    def __init__(
        self, url: str, *, api_key: str | None = None, http: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._client = httpx.AsyncClient(**client_options(url, api_key, http) | {"timeout": 2 * MAX_WAIT_S})

    async def send(
        self, playbook: str, verb: str, body: Mapping[str, Any], *, wait_s: int = 0
    ) -> CommandEffect:
        """Send a command and return its effect, which must come within ``wait_s`` if given.

        Raises
        ------
        CombeeError
            If it is refused, or has no effect in time.
        """
        path = f"/v1/playbooks/{quote(playbook, safe='')}/{verb}"
        with translated(f"POST {path}"):
            response = await self._client.post(path, params={"wait_s": wait_s}, json=dict(body))
        check(response, f"POST {path}")
        effect: CommandEffect = _read(CommandEffect, response.content)
        if wait_s and not effect.done:
            raise TransientError(f"POST {path}: no effect within {wait_s} s")
        return effect

    async def fate(self, playbook: str, reflection_id: str) -> ReflectionStatus:
        """Wait until a reflection is applied, dead-lettered or dropped, and return its status.

        Raises
        ------
        ConfigurationError
            If the gateway reports a setting that holds it back.
        """
        path = f"/v1/reflections/{quote(reflection_id, safe='')}"
        began = time.monotonic()
        while True:
            with translated(f"GET {path}"):
                response = await self._client.get(path, params={"playbook": playbook})
            check(response, f"GET {path}")
            fate: ReflectionStatus = _read(ReflectionStatus, response.content)
            if fate.state in FATES:
                return fate
            if fate.held and time.monotonic() - began >= HELD_S:
                raise ConfigurationError(fate.held)
            await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()


def _read(kind: type[Any], content: bytes) -> Any:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise PoisonError(f"the gateway's answer is not a {kind.__name__}") from error
