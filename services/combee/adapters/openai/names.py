"""Model names as users write them: ``openai/gpt-4.1-mini``, ``azure/DEPLOYMENT``, or the name that a server knows."""

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from combee.adapters.ports import ConfigurationError

OPENAI_URL = "https://api.openai.com/v1"
BASE_URLS = {"openai": OPENAI_URL, "ollama": "http://127.0.0.1:11434/v1"}
"""Default base URLs of the known providers."""

NO_KEY = "none"
"""Sent to servers that need no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The address of a model's server, and its key."""

    url: str
    key: str = field(default=NO_KEY, repr=False)
    azure_version: str = ""
    """The version of Azure's interface; empty: it is another server."""
    key_is_token: bool = False
    """Whether the key is a token of Azure's directory."""

    @property
    def host(self) -> str:
        """The server's name and port, without a login."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets, which are never shown: the key, and a password in the address."""
        password = urlsplit(self.url).password or ""
        return self.key, password, unquote(password)

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Azure:
    """The values of Azure's own variables."""

    endpoint: str | None = None
    version: str | None = None
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


NO_AZURE = Azure()
_PREFIXED = re.compile(rf"({'|'.join(BASE_URLS)})[/:](.+)", re.IGNORECASE)
_ON_AZURE = re.compile(r"azure[/:](.+)", re.IGNORECASE)


def resolve_model(
    model: str, base_url: str | None, api_key: str | None, azure: Azure = NO_AZURE
) -> tuple[str, Server]:
    """Return the name the server knows, and the server.

    The prefix of a known provider is stripped; any other prefix belongs to the server's own name
    (``meta-llama/Llama-3``), and so does ``azure/`` where a base URL is given. A server whose own names begin with
    ``openai/`` needs the prefix twice.

    Raises
    ------
    ConfigurationError
        If the name is empty, the URL is not HTTP, or a key is missing or unusable.
    """
    if on_azure := _on_azure(model, base_url):
        return on_azure, _azure_server(azure)
    prefixed = _PREFIXED.fullmatch(model.strip())
    provider, name = (prefixed[1].lower(), prefixed[2]) if prefixed else ("openai", model.strip())
    if not name:
        raise ConfigurationError(
            "no model is named: set COMBEE_MODEL, such as openai/gpt-4.1-mini, azure/DEPLOYMENT or ollama/llama3"
        )
    url = (base_url or "").strip() or BASE_URLS[provider]
    key = _usable_key(api_key, "OPENAI_API_KEY")
    if url == OPENAI_URL and key == NO_KEY:
        raise ConfigurationError(
            "OpenAI needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server"
        )
    return name, Server(url=_usable_url(url, "the model's base URL", "OPENAI_BASE_URL"), key=key)


def resolve_embedding(
    embedding: str,
    *,
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    model_url: str | None,
    model_key: str | None,
    azure: Azure = NO_AZURE,
) -> tuple[str, Server]:
    """Return the name of an embedding model, as its server knows it, and the server.

    The server is the one of the language model (``model…``), unless ``base_url`` is given or, without ``model_url``,
    the name has a known provider's prefix. The language model's key is sent to that model's server only.

    Raises
    ------
    ConfigurationError
        As for ``resolve_model``.
    """
    try:
        if not (base_url or "").strip():
            if on_azure := _on_azure(embedding, model_url):
                return on_azure, _azure_server(azure, api_key)
            if _on_azure(model or "", model_url) and not _PREFIXED.fullmatch(embedding.strip()):
                return embedding.strip(), _azure_server(azure, api_key)
        model_address = _address(model or "", model_url)
        # Where the language model has an address of its own, a prefix does not send the texts elsewhere.
        is_provider_named = _PREFIXED.fullmatch(embedding.strip()) and not (model_url or "").strip()
        url = (base_url or "").strip() or (_address(embedding, None) if is_provider_named else model_address)
        return resolve_model(embedding, url, api_key or (model_key if url == model_address else None))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"COMBEE_EMBEDDING_MODEL={embedding} cannot be asked: {error}; for embeddings alone set"
            " COMBEE_EMBEDDING_BASE_URL and COMBEE_EMBEDDING_API_KEY"
        ) from error


def _address(model: str, base_url: str | None) -> str:
    prefixed = _PREFIXED.fullmatch(model.strip())
    return (base_url or "").strip() or BASE_URLS[prefixed[1].lower() if prefixed else "openai"]


def _on_azure(model: str, base_url: str | None) -> str | None:
    """Return a deployment's name on Azure; None if that is not where the model is."""
    prefixed = _ON_AZURE.fullmatch(model.strip())
    return prefixed[1] if prefixed and not (base_url or "").strip() else None


def _azure_server(azure: Azure, api_key: str | None = None) -> Server:
    if not azure.endpoint or not azure.version:
        missing = "OPENAI_API_VERSION" if azure.endpoint else "AZURE_OPENAI_ENDPOINT"
        raise ConfigurationError(f"a model on Azure needs its address and the API version: set {missing}")
    # A token wins over a key, as in the client itself.
    token = NO_KEY if api_key else _usable_key(azure.token, "AZURE_OPENAI_AD_TOKEN")
    is_token = token != NO_KEY
    return Server(
        url=_usable_url(azure.endpoint.strip(), "Azure's address", "AZURE_OPENAI_ENDPOINT"),
        key=token if is_token else _usable_key(api_key or azure.key, "AZURE_OPENAI_API_KEY"),
        azure_version=azure.version.strip(),
        key_is_token=is_token,
    )


def _usable_url(url: str, what: str, variable: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IP address
        usable = False
    if not usable:
        raise ConfigurationError(f"{what} must begin with http:// or https:// and a host: set {variable}")
    return url


def _usable_key(given: str | None, variable: str) -> str:
    key = (given or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(f"the model's API key holds characters no key has: set {variable} again")
    return key or NO_KEY
