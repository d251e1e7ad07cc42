"""What a client shows a cluster: every setting that is missing or wrong has its own sentence."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from cryptography.hazmat.primitives import serialization
from pydantic import SecretStr

from combee.adapters.credentials import Credentials
from combee.adapters.extras import pip_install
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.errors import Need, refused_certificate, translated
from combee.adapters.kafka.security import NEEDS, security_options, variable
from combee.adapters.ports import ConfigurationError
from combee.process.settings.loading import load_settings
from combee.sdk.address import resolved_address
from support.rows import each_row

CLIENT, SECRET, PASSWORD = "combee-scan", "a secret word", "opens the key"
WHOLE: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_username": "u",
    "sasl_password": "p",
    "oauth_token_url": "http://127.0.0.1:1/token",
    "oauth_client_id": CLIENT,
    "oauth_client_secret": SECRET,
    "aws_region": "eu-central-1",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return a certificate, its key, the same key encrypted, another's key, and all that in one file."""
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("certificates")
    issued = authority.issue_cert("scan@combee.test", common_name="scan", organization_name="combee")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    contents = {
        "certificate": b"".join(blob.bytes() for blob in issued.cert_chain_pems),
        "key": issued.private_key_pem.bytes(),
        "locked": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        ),
        "other": authority.issue_cert("other@combee.test").private_key_pem.bytes(),
        "both": issued.private_key_and_cert_chain_pem.bytes(),
        "text": b"no certificate",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


# ---- settings


@each_row(("mechanism", "name"), [(one, name) for one, names in NEEDS.items() for name in names])
def test_what_a_mechanism_needs_and_lacks_names_its_setting(mechanism: str, name: str) -> None:
    lacking: dict[str, Any] = {name: None}
    with pytest.raises(ConfigurationError, match=f"{mechanism} needs {variable(name)}: set it"):
        security_options(Credentials(**WHOLE | {"sasl_mechanism": mechanism, **lacking}))


CERTIFICATES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "no such certificate": ({"ssl_certfile": "nowhere"}, r"COMBEE_SSL_CERTFILE.*nowhere.*No such file"),
    "no certificate in it": ({"ssl_certfile": "text"}, "no certificate with its key in PEM"),
    "its key is missing": ({"ssl_certfile": "certificate"}, "no certificate with its key in PEM"),
    "another's key": ({"ssl_certfile": "certificate", "ssl_keyfile": "other"}, "is not the key of"),
    "a key that is locked": (
        {"ssl_certfile": "certificate", "ssl_keyfile": "locked"},
        "COMBEE_SSL_KEY_PASSWORD does not open",
    ),
    "a key without its certificate": ({"ssl_keyfile": "key"}, "COMBEE_SSL_KEYFILE needs COMBEE_SSL_CERTFILE"),
    "no such authority": ({"ssl_cafile": "nowhere"}, r"COMBEE_SSL_CAFILE: .*nowhere"),
}


@pytest.mark.parametrize(("changes", "sentence"), CERTIFICATES.values(), ids=CERTIFICATES)
def test_a_certificate_that_cannot_be_used_is_said_with_its_remedy(
    files: Mapping[str, Path], changes: Mapping[str, str], sentence: str
) -> None:
    given: dict[str, Any] = {name: files.get(file, Path(file)) for name, file in changes.items()}
    with pytest.raises(ConfigurationError, match=sentence):
        security_options(Credentials(security_protocol="SSL", **given))


def test_a_wrong_password_of_a_key_asks_nobody_and_is_not_shown(files: Mapping[str, Path]) -> None:
    locked = Credentials(
        security_protocol="SSL",
        ssl_certfile=files["certificate"],
        ssl_keyfile=files["locked"],
        ssl_key_password="not this one",  # noqa: S106
    )
    with pytest.raises(ConfigurationError, match="COMBEE_SSL_KEY_PASSWORD does not open") as raised:
        security_options(locked)
    assert "not this one" not in f"{raised.value} {locked!r}"
    security_options(locked.model_copy(update={"ssl_key_password": SecretStr(PASSWORD)}))


def test_a_certificate_without_tls_is_not_passed_over(files: Mapping[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"COMBEE_SSL_CERTFILE has no effect .* set that to SSL"):
        security_options(Credentials(security_protocol="PLAINTEXT", ssl_certfile=files["both"]))


def test_a_certificate_s_principal_is_its_subject_as_java_writes_it(files: Mapping[str, Path]) -> None:
    given = Credentials(security_protocol="SSL", ssl_certfile=files["both"])
    connection = Connection.secured(given, bootstrap_servers="k:1", prefix="p")
    assert connection.principal.startswith("User:CN=scan,")
    assert connection.principal.endswith(",O=combee")


@pytest.mark.parametrize("reason", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"])
def test_an_alert_about_a_certificate_is_told_apart_from_other_trouble(reason: str) -> None:
    alert, other = ssl.SSLError(1, reason), ssl.SSLError(1, "x")
    alert.reason, other.reason = reason, "WRONG_VERSION_NUMBER"
    assert "wants a client certificate" in str(refused_certificate("c", alert, shown=""))
    assert "does not accept" in str(refused_certificate("c", alert, shown="a.pem"))
    assert refused_certificate("c", other, shown="a.pem") is None


# ---- tokens


@each_row("url", ["http://tokens.test/", "tokens.test", "ftp://x/", "https://", "file:///etc/passwd"])
def test_a_secret_goes_over_tls_or_stays_on_this_machine(url: str) -> None:
    with pytest.raises(ConfigurationError, match="COMBEE_OAUTH_TOKEN_URL must begin with https://"):
        security_options(Credentials(**WHOLE | {"sasl_mechanism": "OAUTHBEARER", "oauth_token_url": url}))


def test_without_amazon_s_library_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigurationError, match=re.escape(pip_install("msk"))):
        security_options(Credentials(**WHOLE | {"sasl_mechanism": "AWS_MSK_IAM"}))


def test_a_missing_right_is_told_although_aiokafkas_sender_wraps_the_error() -> None:
    need = Need(
        principal="User:combee-publish", operation="Read", topics=("combee.updates",), group="combee.publish"
    )
    wrapped = KafkaError("Unexpected error during batch delivery")
    wrapped.__cause__ = TopicAuthorizationFailedError()
    with pytest.raises(ConfigurationError) as error, translated("committing", need):
        raise wrapped
    assert "User:combee-publish has no right to Read on topic combee.updates" in str(error.value)


@pytest.mark.parametrize("named", ["combee.updates", {"combee.updates"}], ids=["a fetch", "a commit"])
def test_a_missing_right_is_told_of_the_topic_that_the_refusal_names(named: object) -> None:
    need = Need(principal="User:p", operation="Read", topics=("combee.commands", "combee.updates"))
    with pytest.raises(ConfigurationError, match=r"to Read on topic combee\.updates:"), translated("r", need):
        raise TopicAuthorizationFailedError(named)


def test_where_the_refusal_names_no_topic_all_are_told_that_it_can_mean() -> None:
    need = Need(principal="User:p", operation="Read", topics=("combee.commands", "combee.updates"))
    with pytest.raises(ConfigurationError) as error, translated("committing", need):
        raise TopicAuthorizationFailedError
    assert "to Read on one of the topics combee.commands, combee.updates: kafka-acls" in str(error.value)
    assert str(error.value).endswith("--topic combee.commands --topic combee.updates")


def test_who_a_client_is_is_read_alike_from_settings_and_from_an_agent_s_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**WHOLE, "sasl_mechanism": "PLAIN"}.items():
        monkeypatch.setenv(variable(name), value)
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "k:1")
    address = resolved_address(None, prefix=None, api_key=None, security=None)
    plain = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
    configured = security_options(load_settings().kafka)
    assert [address.security[name] for name in plain] == [configured[name] for name in plain]
    monkeypatch.setenv("COMBEE_SASL_MECHANISM", "SCRUM")
    with pytest.raises(ConfigurationError, match="COMBEE_SASL_MECHANISM: Input should be"):
        resolved_address(None, prefix=None, api_key=None, security=None)
