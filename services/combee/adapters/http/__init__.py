"""The gateway as a transport (httpx)."""

from combee.adapters.http.gateway import GatewayTransport

__all__ = ["GatewayTransport"]
