"""Reachability of the brokers: whether one answers, and if none does, why."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiokafka import errors as kafka
from aiokafka.conn import AIOKafkaConnection, collect_hosts
from aiokafka.protocol.admin import SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.errors import refused_certificate, translated
from combee.adapters.ports import CombeeError, ConfigurationError, TransientError

ANSWER_TIMEOUT_MS = 5_000
"""Milliseconds after which a broker that has not answered an empty request counts as away."""
CLOSE_S = 1.0
ASKED_MECHANISM = "PLAIN"


class Reachability:
    """Whether a broker answers, checked over one connection that is kept.

    The clients of aiokafka do not say why they cannot connect. Here the reason is raised: a TransientError heals by
    waiting, a ConfigurationError does not.
    """

    def __init__(self, connection: Connection) -> None:
        self._options = connection.client | {"request_timeout_ms": ANSWER_TIMEOUT_MS}
        self._need = connection.need("Describe")
        self._certificate = connection.certificate
        self._servers = self._options.pop("bootstrap_servers")
        self._open: Any = None

    async def check(self) -> None:
        """Return when a broker has answered a request for metadata.

        Raises
        ------
        TransientError, ConfigurationError
            If none does; the message says why.
        """
        if self._open is not None:
            try:
                await self._request_metadata(self._open)
            except CombeeError:
                await self.close()
            else:
                return
        failures: list[CombeeError] = []
        for host, port, _ in collect_hosts(self._servers):
            try:
                self._open = await self._connect_and_ask(host, port)
            except TransientError as error:
                why = await self._refused_certificate(host, port) or await self._protocol_mismatch(host, port)
                failures.append(why or error)
            except CombeeError as error:
                failures.append(error)
            else:
                return
        refusals = [error for error in failures if isinstance(error, ConfigurationError)]
        raise (refusals or failures)[0]

    async def _connect_and_ask(self, host: str, port: int) -> Any:
        with translated(f"connecting to {host}:{port}", self._need):
            opened = await _open_connection(host, port, self._options)
        try:
            await self._request_metadata(opened)
        except CombeeError:
            await opened.close()
            raise
        return opened

    async def _request_metadata(self, opened: Any) -> None:
        with translated("asking for metadata", self._need):
            await opened.send(MetadataRequest([]))

    async def close(self) -> None:
        """Disconnect."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()

    async def _refused_certificate(self, host: str, port: int) -> ConfigurationError | None:
        """Return what is wrong with the client's certificate, if that is why the broker hangs up.

        In TLS 1.3 a broker checks it after the client's handshake, so aiokafka only sees a broken connection.
        """
        context = self._options.get("ssl_context")
        if context is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                try:
                    writer.write(
                        b"\0\0\0\0"
                    )  # no request: a broker that accepted the client closes without an alert
                    await reader.read(1)
                finally:
                    writer.transport.abort()
        except ssl.SSLError as error:
            return refused_certificate(f"connecting to {host}:{port}", error, shown=self._certificate)
        except (OSError, TimeoutError):
            return None
        return None

    async def _protocol_mismatch(self, host: str, port: int) -> ConfigurationError | None:
        """Return what is wrong with COMBEE_SECURITY_PROTOCOL, if the broker is up and uses another protocol.

        A broker closes a connection in the wrong protocol without an answer, like a broker that goes down.
        """
        ours = self._options.get("security_protocol", "PLAINTEXT")
        spoken = await self._spoken_protocol(host, port)
        if spoken is None or spoken == ours:
            return None
        return ConfigurationError(
            f"connecting to {host}:{port}: the broker speaks {spoken}, COMBEE_SECURITY_PROTOCOL says {ours}:"
            f" set it to {spoken}"
        )

    async def _spoken_protocol(self, host: str, port: int) -> str | None:
        for context in (_unverified_context(), None):
            options = {
                "security_protocol": "SSL" if context else "PLAINTEXT",
                "ssl_context": context,
                "request_timeout_ms": ANSWER_TIMEOUT_MS,
            }
            with suppress(CombeeError), translated("looking at the protocol"):
                opened = await _open_connection(host, port, options)
                try:
                    answer = await opened.send(SaslHandShakeRequest(ASKED_MECHANISM))
                finally:
                    await opened.close()
                has_sasl = answer.error_code != kafka.IllegalSaslStateError.errno
                return ("SASL_" if has_sasl else "") + ("SSL" if context else "PLAINTEXT")
        return None


async def _open_connection(host: str, port: int, options: Mapping[str, Any]) -> Any:
    """Return an open connection; a refused one is closed."""
    connection = AIOKafkaConnection(host, port, **options)
    try:
        await connection.connect()
    except BaseException:
        if connection._protocol is not None:  # noqa: SLF001 - without it there is no socket to wait for
            await asyncio.wait({connection.close()}, timeout=CLOSE_S)
        raise
    return connection


def _unverified_context() -> ssl.SSLContext:
    """Return a context to find out whether a server uses TLS; nothing secret is sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
