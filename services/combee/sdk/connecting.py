"""Which transport an address needs."""

from collections.abc import Callable

from combee.ports import FatalError
from combee.sdk.environment import Address
from combee.sdk.transport import Transport

NO_HTTPX = "a gateway's address needs httpx: pip install 'combee[http]', or give Kafka's bootstrap servers"


def connecting(address: Address) -> Callable[[], Transport]:
    """Return what makes the transport; only its library is loaded, and nothing connects yet.

    Raises
    ------
    FatalError
        If the address is a gateway's and httpx is not installed.
    """
    if not address.is_gateway:
        from combee.adapters.kafka.connection import Connection  # noqa: PLC0415 - only what is used
        from combee.adapters.kafka.log import KafkaLog  # noqa: PLC0415 - the same
        from combee.sdk.log_transport import LogTransport  # noqa: PLC0415 - the same

        found = Connection(
            bootstrap_servers=address.url, prefix=address.prefix, security=dict(address.security)
        )
        return lambda: LogTransport(KafkaLog(found))
    try:
        from combee.adapters.http import GatewayTransport  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise FatalError(NO_HTTPX) from error
    return lambda: GatewayTransport(address.url, api_key=address.api_key)
