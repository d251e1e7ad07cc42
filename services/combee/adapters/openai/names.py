"""Model names as users write them: ``openai/gpt-4.1-mini``, ``ollama:llama3``, or the server's own name."""

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from combee.ports import ConfigurationError

OPENAI_URL = "https://api.openai.com/v1"
BASE_URLS = {"openai": OPENAI_URL, "ollama": "http://127.0.0.1:11434/v1"}
"""Where each known provider is when no base URL is given."""

NO_KEY = "none"
"""Sent to servers that need no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a model is asked, and with which key."""

    url: str
    key: str = field(default=NO_KEY, repr=False)

    @property
    def host(self) -> str:
        """Its name and port, without a login."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")


_PREFIXED = re.compile(rf"({'|'.join(BASE_URLS)})[/:](.+)", re.IGNORECASE)


def resolve_model(model: str, base_url: str | None, api_key: str | None) -> tuple[str, Server]:
    """Return the name the server knows, and the server.

    One known provider's prefix is stripped; any other prefix belongs to the server's own name
    (``meta-llama/Llama-3``). A server whose own names begin with ``openai/`` needs the prefix twice.

    Raises
    ------
    ConfigurationError
        If the name is empty, the URL is not HTTP, or a key is missing or unusable.
    """
    prefixed = _PREFIXED.fullmatch(model.strip())
    provider, name = (prefixed[1].lower(), prefixed[2]) if prefixed else ("openai", model.strip())
    if not name:
        raise ConfigurationError(
            "no model is named: set COMBEE_MODEL, such as openai/gpt-4.1-mini or ollama/llama3"
        )
    url = (base_url or "").strip() or BASE_URLS[provider]
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise ConfigurationError(
            "the model's base URL must begin with http:// or https://: set OPENAI_BASE_URL"
        )
    return name, Server(url=url, key=_usable_key((api_key or "").strip(), required=url == OPENAI_URL))


def resolve_embedding(
    embedding: str,
    *,
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    model_url: str | None,
    model_key: str | None,
) -> tuple[str, Server]:
    """Return the same for an embedding model: its server is the model's, unless an address or a provider is named.

    The model's key goes to the model's server alone.

    Raises
    ------
    ConfigurationError
        As for ``resolve_model``.
    """
    of_model = _address(model or "", model_url)
    named = _PREFIXED.fullmatch(embedding.strip()) and not (model_url or "").strip()
    url = (base_url or "").strip() or (_address(embedding, None) if named else of_model)
    try:
        return resolve_model(embedding, url, api_key or (model_key if url == of_model else None))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"COMBEE_EMBEDDING_MODEL={embedding} cannot be asked: {error}; for embeddings alone set"
            " COMBEE_EMBEDDING_BASE_URL and COMBEE_EMBEDDING_API_KEY"
        ) from error


def _address(model: str, base_url: str | None) -> str:
    prefixed = _PREFIXED.fullmatch(model.strip())
    return (base_url or "").strip() or BASE_URLS[prefixed[1].lower() if prefixed else "openai"]


def _usable_key(key: str, *, required: bool) -> str:
    if required and not key:
        raise ConfigurationError(
            "OpenAI needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the model's API key holds characters no key has: set OPENAI_API_KEY again")
    return key or NO_KEY
