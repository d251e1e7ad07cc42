"""The address of a client's deployment, and the transport that it needs."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from combee.adapters.credentials import SECRETS, Credentials
from combee.adapters.extras import pip_install
from combee.adapters.ports import ConfigurationError, FatalError
from combee.core.names.sources import Signer
from combee.process.secret_files import secrets_in_files
from combee.sdk.logs import logger, quiet
from combee.sdk.transport import Transport

GATEWAY_KEY = "COMBEE_GATEWAY_KEY"
SOURCE, SOURCE_SECRET = "COMBEE_SOURCE", "COMBEE_SOURCE_SECRET"
VARIABLES = ("COMBEE_GATEWAY_URL", GATEWAY_KEY, f"{GATEWAY_KEY}_FILE")
"""Environment variables that agents set and no service reads."""
REMEDY = (
    "give Client an address (Kafka's 'host:port' or the gateway's 'http://…'), or set COMBEE_GATEWAY_URL or"
    " COMBEE_BOOTSTRAP_SERVERS"
)
SEVERAL = f"name one with COMBEE_DATA_DIR, or {REMEDY}"
NO_ADDRESS = f"no deployment is configured, and no 'combee up' runs on this machine: {REMEDY}"
DATA_DIR, PREFIX = "COMBEE_DATA_DIR", "COMBEE_TOPIC_PREFIX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a deployment, with credentials."""

    url: str
    """``http(s)://…`` for a gateway, else Kafka's bootstrap servers."""
    prefix: str
    api_key: str | None = field(default=None, repr=False)
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)
    certificate: str = ""
    """The file of the client's certificate (Kafka only)."""
    signer: Signer | None = None
    """The source that the client declares (Kafka only: a gateway identifies sources by keys)."""

    @property
    def is_gateway(self) -> bool:
        """Whether it is a gateway's address."""
        return is_gateway(self.url)


def is_gateway(url: str) -> bool:
    """Return whether an address is a gateway's."""
    return url.startswith(("http://", "https://"))


def resolved_address(
    url: str | None,
    *,
    prefix: str | None,
    api_key: str | None,
    security: Mapping[str, Any] | None,
    source: str | None = None,
    source_secret: str | None = None,
) -> Address:
    """Return the given address, else the environment's, else that of the ``combee up`` that runs on this machine.

    Raises
    ------
    FatalError
        If there is none, or if several run.
    """
    # The services' settings need pydantic-settings, which agents may not have; the names are the same.
    environ = dict(os.environ)  # noqa: TID251 - see above; read once per client
    address = url or environ.get("COMBEE_GATEWAY_URL") or environ.get("COMBEE_BOOTSTRAP_SERVERS")
    prefix = prefix or environ.get(PREFIX)
    if not address:
        address, prefix = _found(environ, prefix)
    certificate = ""
    if security is None:
        security, certificate = ({}, "") if is_gateway(address) else _security(environ)
    key = api_key or environ.get(GATEWAY_KEY) or secrets_in_files(environ, [GATEWAY_KEY]).get(GATEWAY_KEY)
    return Address(
        url=address,
        prefix=prefix or "combee",
        api_key=key,
        security=security,
        certificate=certificate,
        signer=_signer(environ, source, source_secret),
    )


def _found(environ: Mapping[str, str], prefix: str | None) -> tuple[str, str]:
    """Return address and prefix of the deployment that runs on this machine, and log which it is."""
    try:
        from combee.process.running import running, sole  # noqa: PLC0415 - Unix only, as 'combee up'
    except ModuleNotFoundError as error:
        raise FatalError(NO_ADDRESS) from error
    data_dir = environ.get(DATA_DIR)
    chosen = sole(running(Path(data_dir) if data_dir else None, environ, prefix=prefix), SEVERAL)
    if chosen is None:
        raise FatalError(NO_ADDRESS)
    if not chosen.is_up:
        raise FatalError(f"{chosen.named} is not up yet: try again when it says so, or {REMEDY}")
    logger.warning("no address was given: using %s", chosen.named)
    has_http = chosen.http and find_spec("httpx") is not None
    return chosen.http if has_http else chosen.bootstrap_servers, chosen.prefix


def _signer(environ: Mapping[str, str], name: str | None, secret: str | None) -> Signer | None:
    name = name or environ.get(SOURCE)
    if not name:
        return None
    secret = (
        secret or environ.get(SOURCE_SECRET) or secrets_in_files(environ, [SOURCE_SECRET]).get(SOURCE_SECRET)
    )
    return Signer(name=name, secret=secret.encode() if secret else None)


def _security(environ: Mapping[str, str]) -> tuple[Mapping[str, Any], str]:
    """Return aiokafka's arguments, and the path of the client's certificate."""
    from combee.adapters.kafka import security  # noqa: PLC0415 - for clients of Kafka only

    names = {security.variable(name): name for name in Credentials.model_fields}
    secrets = secrets_in_files(environ, map(security.variable, SECRETS))
    given = {
        field: value for name, field in names.items() if (value := secrets.get(name) or environ.get(name))
    }
    try:
        credentials = Credentials.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise ConfigurationError(f"{security.variable(str(problem['loc'][0]))}: {problem['msg']}") from None
    return security.security_options(credentials), str(credentials.ssl_certfile or "")


NO_HTTPX = f"a gateway's address needs httpx: {pip_install('http')}, or give Kafka's bootstrap servers"


def transport_factory(address: Address) -> Callable[[], Transport]:
    """Return a factory of the transport, which loads only its own library and does not connect.

    Raises
    ------
    FatalError
        If the address is a gateway's and httpx is not installed.
    """
    if not address.is_gateway:
        from combee.adapters.kafka.connection import Connection  # noqa: PLC0415 - loaded only if used
        from combee.adapters.kafka.log import KafkaLog  # noqa: PLC0415 - the same
        from combee.sdk.transport import LogTransport  # noqa: PLC0415 - the same

        quiet("aiokafka")
        connection = Connection(
            bootstrap_servers=address.url,
            prefix=address.prefix,
            security=dict(address.security),
            certificate=address.certificate,
        )
        return lambda: LogTransport(KafkaLog(connection), address.signer)
    try:
        from combee.adapters.http import GatewayTransport  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise FatalError(NO_HTTPX) from error
    return lambda: GatewayTransport(address.url, api_key=address.api_key)
