"""Where a client finds its deployment."""

import ssl

import pytest

from combee.adapters.ports import FatalError
from combee.core.names.sources import Signer
from combee.sdk.address import resolved_address


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "kafka:9092")
    monkeypatch.setenv("COMBEE_TOPIC_PREFIX", "mine")
    found = resolved_address("other:9092", prefix="theirs", api_key=None, security=None)
    assert (found.url, found.prefix, found.is_gateway) == ("other:9092", "theirs", False)
    found = resolved_address(None, prefix=None, api_key=None, security=None)
    assert (found.url, found.prefix) == ("kafka:9092", "mine")


def test_a_gateway_goes_before_kafka_and_its_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "kafka:9092")
    monkeypatch.setenv("COMBEE_GATEWAY_URL", "http://gateway:8080")
    monkeypatch.setenv("COMBEE_GATEWAY_KEY", "a-key")
    found = resolved_address(None, prefix=None, api_key=None, security=None)
    assert (found.url, found.api_key, found.is_gateway) == ("http://gateway:8080", "a-key", True)
    assert "a-key" not in repr(found)


def test_the_services_variables_secure_the_sdk_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("COMBEE_SASL_USERNAME", "agent")
    monkeypatch.setenv("COMBEE_SASL_PASSWORD", "secret-word")
    found = resolved_address("kafka:9092", prefix=None, api_key=None, security=None)
    assert isinstance(found.security["ssl_context"], ssl.SSLContext)
    assert found.security["sasl_plain_username"] == "agent"
    assert found.security["sasl_mechanism"] == "SCRAM-SHA-512"
    assert "secret-word" not in repr(found)


def test_no_address_at_all_names_the_remedy() -> None:
    with pytest.raises(FatalError, match="COMBEE_GATEWAY_URL or COMBEE_BOOTSTRAP_SERVERS"):
        resolved_address(None, prefix=None, api_key=None, security=None)


def test_a_client_declares_a_source_and_its_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_SOURCE", "shop")
    monkeypatch.setenv("COMBEE_SOURCE_SECRET", "secret-word")
    found = resolved_address("kafka:9092", prefix=None, api_key=None, security=None)
    assert found.signer == Signer(name="shop", secret=b"secret-word")
    assert "secret-word" not in repr(found)
    given = resolved_address(
        "kafka:9092",
        prefix=None,
        api_key=None,
        security=None,
        source="desk",
        source_secret="another",  # noqa: S106 - a made-up one
    )
    assert given.signer == Signer(name="desk", secret=b"another")
    monkeypatch.delenv("COMBEE_SOURCE")
    assert resolved_address("kafka:9092", prefix=None, api_key=None, security=None).signer is None
