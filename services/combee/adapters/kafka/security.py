"""Authentication of clients: TLS, SASL, client certificates and tokens, in the form for aiokafka and Faust."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from combee.adapters.credentials import Credentials
from combee.adapters.kafka.tokens import MskTokens, OAuthTokens, Tokens, token_address
from combee.adapters.ports import ConfigurationError

MSK_IAM = "AWS_MSK_IAM"
"""Amazon's variant of OAUTHBEARER: its library signs tokens with the credentials of the machine."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "PLAIN": ("sasl_username", "sasl_password"),
    "SCRAM-SHA-256": ("sasl_username", "sasl_password"),
    "SCRAM-SHA-512": ("sasl_username", "sasl_password"),
    "OAUTHBEARER": ("oauth_token_url", "oauth_client_id", "oauth_client_secret"),
    MSK_IAM: ("aws_region",),
}
"""Required settings by mechanism."""
ATTRIBUTES = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Java's names for the parts of a certificate's subject."""


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"COMBEE_{name.upper()}"


def security_options(credentials: Credentials) -> dict[str, Any]:
    """Return aiokafka's security arguments; tokens are fetched when a connection needs one.

    Raises
    ------
    ConfigurationError
        If something is missing or cannot be read; the message names the variable.
    """
    protocol = credentials.security_protocol
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        options |= _sasl(credentials)
    if protocol.endswith("SSL"):
        options["ssl_context"] = _context(credentials)
    elif credentials.ssl_certfile:
        raise ConfigurationError(
            f"COMBEE_SSL_CERTFILE has no effect with COMBEE_SECURITY_PROTOCOL={protocol}: set that to SSL"
        )
    return options


def _sasl(credentials: Credentials) -> dict[str, Any]:
    protocol, mechanism = credentials.security_protocol, credentials.sasl_mechanism
    for name in NEEDS[mechanism]:
        if not getattr(credentials, name):
            asking = f"COMBEE_SECURITY_PROTOCOL={protocol} with COMBEE_SASL_MECHANISM={mechanism}"
            raise ConfigurationError(f"{asking} needs {variable(name)}: set it")
    if tokens := _tokens(credentials):
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": tokens}
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": credentials.sasl_username,
        "sasl_plain_password": _revealed(credentials.sasl_password),
    }


def _tokens(credentials: Credentials) -> Tokens | None:
    if credentials.sasl_mechanism == MSK_IAM:
        return MskTokens(credentials.aws_region or "")
    if credentials.sasl_mechanism != "OAUTHBEARER":
        return None
    address = token_address(credentials.oauth_token_url or "")
    trusted = _trusting(credentials.oauth_cafile, "oauth_cafile") if address.scheme == "https" else None
    return OAuthTokens(
        address,
        client_id=credentials.oauth_client_id or "",
        client_secret=_revealed(credentials.oauth_client_secret),
        scope=credentials.oauth_scope or "",
        context=trusted,
    )


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = _trusting(credentials.ssl_cafile, "ssl_cafile")
    if credentials.ssl_certfile is None:
        if credentials.ssl_keyfile:
            raise ConfigurationError("COMBEE_SSL_KEYFILE needs COMBEE_SSL_CERTFILE: set it")
        return context
    try:
        # Without a password the library would ask for one at the terminal.
        context.load_cert_chain(
            credentials.ssl_certfile, credentials.ssl_keyfile, _revealed(credentials.ssl_key_password)
        )
    except ssl.SSLError as error:
        raise ConfigurationError(_wrong_key(credentials, error)) from error
    except OSError as error:
        files = ", ".join(str(path) for path in (credentials.ssl_certfile, credentials.ssl_keyfile) if path)
        raise ConfigurationError(
            f"COMBEE_SSL_CERTFILE, COMBEE_SSL_KEYFILE: {files}: {error.strerror or error}"
        ) from error
    return context


def _revealed(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""


def _wrong_key(credentials: Credentials, error: ssl.SSLError) -> str:
    key = credentials.ssl_keyfile or credentials.ssl_certfile
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"COMBEE_SSL_KEYFILE: {key} is not the key of {credentials.ssl_certfile}"
    if b"ENCRYPTED" in Path(key or "").read_bytes():
        return f"COMBEE_SSL_KEY_PASSWORD does not open {key}: set the key's password"
    return f"COMBEE_SSL_CERTFILE, COMBEE_SSL_KEYFILE: no certificate with its key in PEM ({error.reason or error})"


def _trusting(cafile: str | Path | None, name: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise ConfigurationError(
            f"{variable(name)}: no certificates can be read from {cafile} ({error.strerror or error})"
        ) from error


# ---- who that is


def principal(options: Mapping[str, Any], certfile: str | Path | None = None) -> str:
    """Return the principal that a broker sees by default, in Kafka's notation."""
    if tokens := options.get("sasl_oauth_token_provider"):
        return f"User:{tokens.subject}"
    if name := options.get("sasl_plain_username"):
        return f"User:{name}"
    return f"User:{_subject(certfile)}" if certfile else "User:ANONYMOUS"


def _subject(certfile: str | Path) -> str:
    """Return a certificate's subject as Java writes it: the last name first."""
    # The standard library has no public way to read a certificate's names; the result is only shown.
    decoded = ssl._ssl._test_decode_cert(str(certfile))  # type: ignore[attr-defined] # noqa: SLF001 - see above
    names = [f"{ATTRIBUTES.get(kind, kind)}={value}" for part in decoded["subject"] for kind, value in part]
    return ",".join(reversed(names))
