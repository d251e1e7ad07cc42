"""A user's endpoint that scores a playbook on a question: it gets JSON by POST and returns a number."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from combee.adapters.http.errors import translated
from combee.adapters.http.gateway import LOOPBACK
from combee.adapters.ports import PoisonError, TransientError

MAX_REPLY = 64 * 1024


class EndpointScorer:
    """Sends ``{"playbook", "question": {"id", "question", "target"}}`` and reads ``{"score": 0.8}``."""

    def __init__(
        self, url: str, *, timeout_s: float, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._url = url
        parts = urlsplit(url)
        self.shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        """The address without parts that may be secret."""
        self._client = httpx.AsyncClient(
            timeout=timeout_s,
            transport=transport,
            trust_env=parts.hostname not in LOOPBACK,
            headers={"accept-encoding": "identity"},
        )

    async def __call__(self, playbook: str, question: Mapping[str, str]) -> float:
        """Return the score.

        Raises
        ------
        TransientError
            If the endpoint is away or broken.
        PoisonError
            If its reply is no score.
        """
        doing = f"POST {self.shown}"
        body = {"playbook": playbook, "question": dict(question)}
        with translated(doing):
            async with self._client.stream("POST", self._url, json=body) as response:
                raw = b""
                # Raw bytes: a compressed body could grow beyond bounds before it is counted.
                async for chunk in response.aiter_raw():
                    raw += chunk
                    if len(raw) > MAX_REPLY:
                        raise PoisonError(f"{doing}: its reply is longer than {MAX_REPLY} bytes")
        if response.is_error:
            raise TransientError(f"{doing}: it answers {response.status_code} {response.reason_phrase}")
        try:
            return float(httpx.Response(200, content=raw).json()["score"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PoisonError(f'{doing}: its reply is not {{"score": number}}') from error

    async def close(self) -> None:
        """Drop connections."""
        await self._client.aclose()
