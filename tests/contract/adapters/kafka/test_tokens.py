"""Tokens of an endpoint on loopback and of Amazon's library: what they are used for, and what is said without one."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import faust
import pytest
from aiokafka.conn import OAuthAuthenticator
from aiokafka.errors import SaslAuthenticationFailed

from combee.adapters.credentials import Credentials
from combee.adapters.kafka import tokens
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.errors import translated
from combee.adapters.kafka.security import security_options
from combee.adapters.ports import CombeeError, ConfigurationError, TransientError
from combee.shuffle.app import build_app
from support.token_endpoint import TokenEndpoint, token_endpoint

DEADLINE_S = 10.0
CLIENT, SECRET = "combee-scan", "a secret word"
WHOLE: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "oauth_token_url": "http://127.0.0.1:1/token",
    "oauth_client_id": CLIENT,
    "oauth_client_secret": SECRET,
    "aws_region": "eu-central-1",
}


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint({CLIENT: SECRET}) as started:
        yield started


def bearer(endpoint: TokenEndpoint, **changes: Any) -> tokens.Tokens:
    given = Credentials(
        **WHOLE | {"sasl_mechanism": "OAUTHBEARER", "oauth_token_url": endpoint.url, **changes}
    )
    provider = security_options(given)["sasl_oauth_token_provider"]
    assert isinstance(provider, tokens.Tokens)
    return provider


async def test_one_token_serves_many_connections_and_is_fetched_anew_before_it_ends(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = bearer(endpoint, oauth_scope="kafka")
    now = 1000.0
    monkeypatch.setattr(tokens, "monotonic", lambda: now)
    first = await asyncio.gather(*(provider.token() for _ in range(5)))
    now += 0.79 * endpoint.life_s
    assert {*first, await provider.token()} == {first[0]}
    assert endpoint.given == {CLIENT: 1}
    now += 0.02 * endpoint.life_s
    await provider.token()
    assert (endpoint.given, endpoint.scopes) == ({CLIENT: 2}, ["kafka", "kafka"])


async def test_event_loops_of_several_threads_share_a_token(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = bearer(endpoint)
    fetch, others = provider._fetch, threading.Barrier(2, timeout=DEADLINE_S)

    def together() -> tuple[str, float]:
        others.wait()
        return fetch()

    async def two() -> tuple[str, str]:
        return await asyncio.gather(provider.token(), provider.token())

    monkeypatch.setattr(provider, "_fetch", together)
    elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, two()))
    here = asyncio.create_task(two())
    await asyncio.to_thread(others.wait)  # somebody fetches, and all others wait for that
    assert len({*await here, *await elsewhere}) == 1


async def test_all_who_wait_for_a_token_share_its_failure(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, fetches, others = bearer(endpoint), 0, threading.Barrier(2, timeout=DEADLINE_S)

    def failing() -> tuple[str, float]:
        nonlocal fetches
        fetches += 1
        others.wait()
        raise tokens.TokenUnavailableError("away")

    monkeypatch.setattr(provider, "_fetch", failing)
    waiting = [asyncio.create_task(provider.token()) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.to_thread(others.wait)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == 5 * [tokens.TokenUnavailableError]
    assert fetches == 1


async def raised(provider: tokens.Tokens) -> CombeeError:
    with pytest.raises(CombeeError) as error, translated("connecting"):
        await provider.token()
    return error.value


async def test_a_refused_client_is_said_with_its_settings_and_without_its_secret(
    endpoint: TokenEndpoint,
) -> None:
    provider = bearer(endpoint, oauth_client_secret="another word")  # noqa: S106
    error = await raised(provider)
    assert isinstance(error, ConfigurationError)
    assert "refuses client combee-scan (401, invalid_client: no such client)" in str(error)
    assert "COMBEE_OAUTH_CLIENT_SECRET" in str(error)
    assert "another" not in f"{error} {provider!r} {provider.__dict__['_address']}"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_endpoint_that_is_ill_is_waited_for(endpoint: TokenEndpoint, status: int) -> None:
    endpoint.status = status
    assert isinstance(await raised(bearer(endpoint)), TransientError)


async def test_an_endpoint_that_is_away_is_waited_for() -> None:
    away = TokenEndpoint("http://127.0.0.1:1/token", {})
    error = await raised(bearer(away))
    assert isinstance(error, TransientError)
    assert "127.0.0.1:1 does not answer" in str(error)


async def test_what_is_no_token_endpoint_is_said(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TokenEndpoint, "answer", lambda *_: (200, {"hello": "world"}))
    assert "has no access_token: correct COMBEE_OAUTH_TOKEN_URL" in str(await raised(bearer(endpoint)))


async def test_a_secret_follows_no_redirection(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TokenEndpoint, "answer", lambda *_: (302, {"error": "elsewhere"}))
    assert "(302, elsewhere)" in str(await raised(bearer(endpoint)))


async def test_whom_a_token_is_about_is_the_principal(endpoint: TokenEndpoint) -> None:
    given = Credentials(**WHOLE | {"sasl_mechanism": "OAUTHBEARER", "oauth_token_url": endpoint.url})
    connection = Connection.secured(given, bootstrap_servers="k:1", prefix="p")
    assert connection.principal == f"User:{CLIENT}"
    provider = connection.security["sasl_oauth_token_provider"]
    endpoint.claims["sub"] = "u-1"
    await provider.token()
    assert connection.principal == "User:u-1"


async def test_a_broker_s_refusal_of_a_token_is_no_success(endpoint: TokenEndpoint) -> None:
    """aiokafka alone takes the answer ``{"status": "invalid_token"}`` for a welcome."""
    authenticator = OAuthAuthenticator(sasl_oauth_token_provider=bearer(endpoint))
    await authenticator.step(None)
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        await authenticator.step(b'{"status": "invalid_token"}')
    assert await authenticator.step(b"") is None


def test_faust_takes_the_same_credentials(tmp_path: Path) -> None:
    given = Credentials(**WHOLE | {"sasl_mechanism": "OAUTHBEARER"})
    app = build_app(Connection.secured(given, bootstrap_servers="k:1", prefix="p"), tmp_path)
    (credentials,) = {app.conf.broker_credentials}
    assert isinstance(credentials, faust.OAuthCredentials)
    assert credentials.protocol.value == "SASL_SSL"


# ---- Amazon


def msk() -> tokens.Tokens:
    provider = security_options(Credentials(**WHOLE | {"sasl_mechanism": "AWS_MSK_IAM"}))[
        "sasl_oauth_token_provider"
    ]
    assert isinstance(provider, tokens.Tokens)
    return provider


async def test_amazon_s_library_signs_a_token_without_asking_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "an-example-key")
    signed = await msk().token()
    url = urlsplit(base64.urlsafe_b64decode(signed + "==").decode())
    assert url.hostname == "kafka.eu-central-1.amazonaws.com"
    assert parse_qs(url.query)["Action"] == ["kafka-cluster:Connect"]
    assert "an-example-key" not in url.geturl()


async def test_no_amazon_credentials_are_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    error = await raised(msk())
    assert isinstance(error, ConfigurationError)
    assert "give this process a role or AWS_ACCESS_KEY_ID" in str(error)
