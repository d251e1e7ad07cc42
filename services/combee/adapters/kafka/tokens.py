"""Tokens for OAUTHBEARER: from an OAuth 2 token endpoint or signed by Amazon's library, cached until they are old."""

import asyncio
import base64
import binascii
import json
import ssl
import threading
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import OAuthAuthenticator
from aiokafka.errors import KafkaError, SaslAuthenticationFailed

from combee.adapters.extras import pip_install
from combee.adapters.ports import ConfigurationError

TIMEOUT_S = 10.0
FRESH = 0.8
"""Share of a token's life during which it is used; after that the next connection fetches another."""
UNTOLD_S = 300.0
"""Assumed life of a token whose server gives none, in seconds."""
SIGNED_S = 900.0
"""Life of a token from Amazon's library, in seconds."""
LONGEST = 1 << 16
"""Maximum bytes read of an answer."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OK, REFUSED, BUSY, BROKEN = 200, 400, 429, 500
NO_SIGNER = f"COMBEE_SASL_MECHANISM=AWS_MSK_IAM needs aws-msk-iam-sasl-signer-python: {pip_install('msk')}"


class TokenRefusedError(KafkaError):  # type: ignore[misc] # its base has no types
    """No token can be had with these settings; the message has the remedy."""


class TokenUnavailableError(KafkaError):  # type: ignore[misc] # the same
    """No token can be had now."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc] # the same
    """One token for all connections of a process, until it is old."""

    def __init__(self, subject: str) -> None:
        _hear_refusals()
        self.subject = subject
        """The subject of the token, as far as known."""
        self._token = ""
        self._until = 0.0
        self._renewing = threading.Lock()
        self._renewal: Future[str] | None = None

    async def token(self) -> str:
        """Return a token that stays valid for a while; concurrent callers share one fetch, and its error."""
        if monotonic() < self._until:
            return self._token
        return await asyncio.shield(asyncio.wrap_future(self._renewed()))

    def _renewed(self) -> Future[str]:
        """Return the renewal under way, or begin one; event loops share it, and Faust's consumer has its own loop."""
        with self._renewing:
            if self._renewal is None or (self._renewal.done() and monotonic() >= self._until):
                self._renewal = Future()
                threading.Thread(target=self._renew, args=(self._renewal,), daemon=True).start()
            return self._renewal

    def _renew(self, renewal: Future[str]) -> None:
        began = monotonic()
        try:
            self._token, life_s = self._fetch()
        except Exception as error:  # noqa: BLE001 - every waiting caller gets it
            renewal.set_exception(error)
            return
        self._until = began + FRESH * life_s
        self.subject = _subject(self._token) or self.subject
        renewal.set_result(self._token)

    @abstractmethod
    def _fetch(self) -> tuple[str, float]:
        """Return a new token and its life in seconds."""


def _hear_refusals() -> None:
    """Make aiokafka end a connection whose token the broker refuses.

    The broker refuses in an answer without an error code, and waits for a message before it hangs up (RFC 7628,
    3.2.3). aiokafka 0.14 mistakes that for success, and every later answer is garbage.
    """
    OAuthAuthenticator.step = _step


_believing_step = OAuthAuthenticator.step


async def _step(self: Any, payload: bytes | None) -> Any:
    if payload:
        raise SaslAuthenticationFailed(payload.decode(errors="replace"))
    return await _believing_step(self, payload)


def token_address(url: str) -> SplitResult:
    """Return the parts of a token endpoint's address.

    Raises
    ------
    ConfigurationError
        If a secret must not be sent there.
    """
    address = urlsplit(url)
    is_safe = address.scheme == "https" or (address.scheme == "http" and address.hostname in LOOPBACK)
    if not is_safe or not address.hostname:
        raise ConfigurationError(
            "COMBEE_OAUTH_TOKEN_URL must begin with https:// (http:// on this machine only): a secret goes there"
        )
    return address


class OAuthTokens(Tokens):
    """From an OAuth 2 token endpoint, by client credentials (RFC 6749, 4.4)."""

    def __init__(
        self,
        address: SplitResult,
        *,
        client_id: str,
        client_secret: str,
        scope: str = "",
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(client_id)
        self._address = address
        self._credentials = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._scope = scope
        self._context = context

    def __repr__(self) -> str:
        return f"OAuthTokens({self._address.hostname}, {self.subject})"

    def _fetch(self) -> tuple[str, float]:
        try:
            status, body = self._post()
        except ssl.SSLCertVerificationError as error:
            raise TokenRefusedError(
                f"the token endpoint's certificate is not trusted ({error.verify_message}): set COMBEE_OAUTH_CAFILE"
            ) from error
        except (OSError, HTTPException) as error:
            where = f"{self._address.hostname}:{self._address.port or ''}".rstrip(":")
            raise TokenUnavailableError(f"the token endpoint {where} does not answer: {error}") from error
        if status == BUSY or status >= BROKEN:
            raise TokenUnavailableError(f"the token endpoint answers {status}")
        if status != OK:
            said = ": ".join(str(body[name]) for name in ("error", "error_description") if name in body)
            raise TokenRefusedError(
                f"the token endpoint refuses client {self.subject} ({status}{', ' if said else ''}{said}): correct"
                " COMBEE_OAUTH_CLIENT_ID, COMBEE_OAUTH_CLIENT_SECRET, COMBEE_OAUTH_SCOPE or COMBEE_OAUTH_TOKEN_URL"
            )
        token, life_s = body.get("access_token"), body.get("expires_in", UNTOLD_S)
        if not isinstance(token, str) or not token or not isinstance(life_s, int | float):
            raise TokenRefusedError(
                "the token endpoint's answer has no access_token: correct COMBEE_OAUTH_TOKEN_URL"
            )
        return token, life_s

    def _post(self) -> tuple[int, Mapping[str, Any]]:
        """Request a token from this address alone: redirections are not followed."""
        host, port = self._address.hostname or "", self._address.port
        connection = (
            HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self._context)
            if self._context
            else HTTPConnection(host, port, timeout=TIMEOUT_S)
        )
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        basic = base64.b64encode(self._credentials.encode()).decode()
        path = (self._address.path or "/") + (f"?{self._address.query}" if self._address.query else "")
        headers = {
            "Authorization": f"Basic {basic}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        try:
            connection.request("POST", path, urlencode(form), headers)
            answer = connection.getresponse()
            return answer.status, _read_object(answer.read(LONGEST))
        finally:
            connection.close()


class MskTokens(Tokens):
    """Signed with this machine's AWS credentials, for Amazon MSK with IAM."""

    def __init__(self, region: str) -> None:
        super().__init__("an IAM role")
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(NO_SIGNER) from error
        self._signer = MSKAuthTokenProvider
        self._region = region

    def _fetch(self) -> tuple[str, float]:
        try:
            token, _expires_at_ms = self._signer.generate_auth_token(self._region)
        except Exception as error:
            raise TokenRefusedError(
                f"no AWS credentials sign a token ({type(error).__name__}: {error}): give this process a role or"
                " AWS_ACCESS_KEY_ID, and correct COMBEE_AWS_REGION"
            ) from error
        return str(token), SIGNED_S


def _read_object(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _subject(token: str) -> str:
    """Return the subject of a token (JWT), unverified because it is only shown; empty if there is none."""
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims, signature
        return ""
    try:
        claims = _read_object(base64.urlsafe_b64decode(parts[1] + "=="))
    except (binascii.Error, ValueError):
        return ""
    return str(claims.get("sub") or "")
