"""An OAuth 2 token endpoint on loopback: it signs tokens that a broker verifies by the endpoint's key."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from combee.adapters.clock import SystemClock

KEY_ID = "tests"
AUDIENCE, ISSUER = "kafka", "https://tokens.test"
BITS, EXPONENT = 2048, 65537


@dataclass(slots=True)
class TokenEndpoint:
    """Who may have a token for how long; ``given`` counts tokens by client."""

    url: str
    secrets: Mapping[str, str]
    life_s: float = 3600.0
    status: int = 200
    """Other than 200: what everybody is told."""
    given: dict[str, int] = field(default_factory=dict)
    scopes: list[str] = field(default_factory=list)
    claims: dict[str, object] = field(default_factory=dict)
    """Beside the usual ones, or in their place."""
    _key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=EXPONENT, key_size=BITS)
    )

    def key_set(self) -> str:
        """Return the public key as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": KEY_ID, "alg": "RS256", "use": "sig"}
        return json.dumps({"keys": [{**key, "n": _number(numbers.n), "e": _number(numbers.e)}]})

    def token(self, client: str) -> str:
        """Return a signed token about a client."""
        now = SystemClock().now_ms() // 1000
        body = {
            "sub": client,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + int(self.life_s),
            **self.claims,
        }
        header = {"alg": "RS256", "kid": KEY_ID, "typ": "JWT"}
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, body))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Return a status and a body for a request."""
        if self.status != 200:
            return self.status, {"error": "temporarily_unavailable"}
        scheme, _, basic = authorization.partition(" ")
        client, _, secret = (
            base64.b64decode(basic).decode().partition(":") if scheme == "Basic" else ("", "", "")
        )
        if unquote(secret) != self.secrets.get(unquote(client)) or form.get("grant_type") != [
            "client_credentials"
        ]:
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        self.given[unquote(client)] = self.given.get(unquote(client), 0) + 1
        self.scopes += form.get("scope", [])
        token = self.token(unquote(client))
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@contextmanager
def token_endpoint(secrets: Mapping[str, str]) -> Iterator[TokenEndpoint]:
    """Serve tokens to these clients."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = endpoint.answer(self.headers.get("Authorization", ""), parse_qs(raw.decode()))
            answer = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint = TokenEndpoint(f"http://127.0.0.1:{server.server_port}/token", dict(secrets))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_key_set(endpoint: TokenEndpoint, folder: Path) -> Path:
    """Write the public key where a broker finds it."""
    path = folder / "keys.json"
    path.write_text(endpoint.key_set())
    return path
