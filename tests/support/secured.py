"""A Kafka with ACLs on loopback, by SCRAM, client certificates and tokens: what is not granted is denied."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import trustme
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest
from cryptography.hazmat.primitives import serialization

from combee.adapters.credentials import Credentials
from combee.adapters.embedded_kafka import EmbeddedKafka
from combee.adapters.embedded_kafka.jvm import Jvm
from combee.adapters.embedded_kafka.ports import LOOPBACK, free_ports
from combee.adapters.kafka import is_ready
from combee.adapters.kafka.security import variable
from support.token_endpoint import AUDIENCE, ISSUER, TokenEndpoint, token_endpoint, write_key_set

RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
}
Way = Literal["scram", "certificate", "token"]
"""How a client shows who it is."""
LISTENERS: Mapping[Way, tuple[str, str]] = {
    "scram": ("OUTER", "SASL_SSL"),
    "certificate": ("MUTUAL", "SSL"),
    "token": ("TOKENS", "SASL_SSL"),
}
"""The broker's listener and its protocol, for each of them."""
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER = "kafka-cluster"
START_S = 200.0
"""What this broker may take to start on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One operation on one resource; a name that ends in ``*`` is a prefix, ``*`` alone means all."""

    resource: str
    name: str
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    """A running broker: where an outsider connects, with what, and how it is administrated."""

    kafka: EmbeddedKafka
    listeners: Mapping[Way, str]
    """Where each way leads to."""
    ca_file: Path
    other_ca_file: Path
    passwords: Mapping[str, str]
    tokens: TokenEndpoint
    strange_tokens: TokenEndpoint
    """Signs with a key that the broker does not know."""
    folder: Path
    authority: trustme.CA

    @property
    def bootstrap_servers(self) -> str:
        """Where SCRAM leads to."""
        return self.listeners["scram"]

    def environment(self, user: str, way: Way = "scram", **changes: str) -> dict[str, str]:
        """Return the settings with which ``user`` connects, as a person would export them."""
        return {
            "COMBEE_BOOTSTRAP_SERVERS": self.listeners[way],
            "COMBEE_SSL_CAFILE": str(self.ca_file),
            **self._shown(user, way),
            **changes,
        }

    def credentials(self, user: str, way: Way = "scram", **changes: Any) -> Credentials:
        """Return the same for code."""
        env = self.environment(user, way)
        given = {name: value for name in Credentials.model_fields if (value := env.get(variable(name)))}
        return Credentials(**given | changes)

    def _shown(self, user: str, way: Way) -> dict[str, str]:
        match way:
            case "scram":
                return {
                    "COMBEE_SECURITY_PROTOCOL": "SASL_SSL",
                    "COMBEE_SASL_USERNAME": user,
                    "COMBEE_SASL_PASSWORD": self.passwords[user],
                }
            case "certificate":
                return {"COMBEE_SECURITY_PROTOCOL": "SSL", "COMBEE_SSL_CERTFILE": str(self.certificate(user))}
            case "token":
                return {
                    "COMBEE_SECURITY_PROTOCOL": "SASL_SSL",
                    "COMBEE_SASL_MECHANISM": "OAUTHBEARER",
                    "COMBEE_OAUTH_TOKEN_URL": self.tokens.url,
                    "COMBEE_OAUTH_CLIENT_ID": user,
                    "COMBEE_OAUTH_CLIENT_SECRET": self.passwords[user],
                }

    def certificate(self, user: str, authority: trustme.CA | None = None) -> Path:
        """Return a file with a user's key and certificate."""
        path = self.folder / f"{user}{'-foreign' if authority else ''}.pem"
        if not path.exists():
            issued = (authority or self.authority).issue_cert(
                f"{user}@combee.test",  # Java refuses a certificate whose names are an empty list
                common_name=user,
                organization_name="combee",
                organization_unit_name="tests",
            )
            issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    @staticmethod
    def principal(user: str, way: Way = "scram") -> str:
        """Return who that is for the broker."""
        return f"User:CN={user},OU=tests,O=combee" if way == "certificate" else f"User:{user}"

    async def grant(self, user: str, *grants: Grant) -> None:
        """Allow ``user`` these operations."""
        await self._tell(CreateAclsRequest(*self._rule(user, grant), ALLOW) for grant in grants)

    async def revoke(self, user: str, *grants: Grant) -> None:
        """Allow ``user`` these operations no longer."""
        await self._tell(DeleteAclsRequest(*self._rule(user, grant), ALLOW) for grant in grants)

    async def deny(self, user: str, *exceptions: Grant) -> None:
        """Forbid ``user`` these operations, whatever else is granted."""
        await self._tell(CreateAclsRequest(*self._rule(user, grant), DENY) for grant in exceptions)

    async def lift(self, user: str, *exceptions: Grant) -> None:
        """Forbid them no longer."""
        await self._tell(DeleteAclsRequest(*self._rule(user, grant), DENY) for grant in exceptions)

    @staticmethod
    def _rule(user: str, grant: Grant) -> tuple[Any, ...]:
        prefix = grant.name.removesuffix("*")
        pattern = PREFIXED if prefix and prefix != grant.name else LITERAL
        name = prefix or grant.name or CLUSTER
        principal = user if user.startswith("User:") else f"User:{user}"
        return RESOURCES[grant.resource], name, pattern, principal, "*", OPERATIONS[grant.operation]

    async def _tell(self, requests: Iterable[Any]) -> None:
        async with self._admin() as admin:
            for request in requests:
                answer = (await admin._send_request(request)).to_object()
                codes = [
                    row["error_code"] for row in next(iter(v for v in answer.values() if isinstance(v, list)))
                ]
                assert codes == [0], answer

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap_servers)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmWithUsers(Jvm):
    """Adds an option to each command, and users to the one that formats a data folder."""

    users: tuple[str, ...]
    option: str

    def command(self, folder: Path, main: str, *arguments: str, record: bool = False) -> list[str]:
        users = self.users if main == "kafka.tools.StorageTool" else ()
        # dataclass(slots=True) makes another class, which super() without arguments does not know.
        java, *rest = Jvm.command(self, folder, main, *arguments, *users, record=record)
        return [java, self.option, *rest]


class KafkaWithUsers(EmbeddedKafka):
    """An embedded broker whose users exist from its first start on."""

    users: tuple[str, ...] = ()
    option = ""

    async def prepare(self) -> Jvm:
        jvm = await super().prepare()
        known = {field.name: getattr(jvm, field.name) for field in fields(Jvm)}
        return JvmWithUsers(**known, users=self.users, option=self.option)


@asynccontextmanager
async def secured_kafka(
    folder: Path, env: Mapping[str, str], users: Iterable[str]
) -> AsyncIterator[SecuredKafka]:
    """Start a broker that outsiders reach by its secured listeners only; tests administrate it on its inner one."""
    authority, other_authority = trustme.CA(), trustme.CA()
    ca_file, other_ca_file, identity = folder / "ca.pem", folder / "other-ca.pem", folder / "broker.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    other_authority.cert_pem.write_to_path(str(other_ca_file))
    # Not for localhost: a client that connects there meets a name that the certificate has not.
    identity.write_bytes(_java_pem(authority.issue_cert(LOOPBACK)))
    addresses = {
        way: f"{LOOPBACK}:{ports.broker}" for way, ports in zip(LISTENERS, free_ports(3), strict=True)
    }
    passwords = {user: f"{user}-password" for user in users}
    with token_endpoint(passwords) as tokens, token_endpoint(passwords) as strange_tokens:
        keys = write_key_set(tokens, folder)
        kafka = KafkaWithUsers(
            folder / "kafka",
            ready=is_ready,
            env=env,
            extra_properties=_properties(addresses, identity, ca_file, keys),
        )
        kafka.users = tuple(
            f"--add-scram=SCRAM-SHA-512=[name={user},password={password}]"
            for user, password in passwords.items()
        )
        kafka.option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
        await kafka.start(START_S)
        try:
            yield SecuredKafka(
                kafka=kafka,
                listeners=addresses,
                ca_file=ca_file,
                other_ca_file=other_ca_file,
                passwords=passwords,
                tokens=tokens,
                strange_tokens=strange_tokens,
                folder=folder,
                authority=authority,
            )
        finally:
            await kafka.stop()


def _properties(addresses: Mapping[Way, str], identity: Path, ca_file: Path, keys: Path) -> dict[str, str]:
    listeners = ",".join(f"{LISTENERS[way][0]}://{address}" for way, address in addresses.items())
    modules = "org.apache.kafka.common.security"
    bearer = "listener.name.tokens.oauthbearer.sasl"
    keystores = {
        f"listener.name.{name.lower()}.ssl.keystore.{key}": value
        for name, _ in LISTENERS.values()
        for key, value in {"type": "PEM", "location": str(identity)}.items()
    }
    return {
        "listeners+": listeners,
        "advertised.listeners+": listeners,
        "listener.security.protocol.map+": ",".join(
            f"{name}:{protocol}" for name, protocol in LISTENERS.values()
        ),
        **keystores,
        "listener.name.outer.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.outer.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(ca_file),
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        # Longer than any token: the broker closes a connection when its token has ended.
        "listener.name.tokens.connections.max.reauth.ms": "3600000",
        f"{bearer}.jaas.config": f"{modules}.oauthbearer.OAuthBearerLoginModule required;",
        f"{bearer}.server.callback.handler.class": f"{modules}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{bearer}.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{bearer}.oauthbearer.expected.audience": AUDIENCE,
        f"{bearer}.oauthbearer.expected.issuer": ISSUER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        # The inner listener is the tests' own.
        "super.users": "User:ANONYMOUS",
    }


def _java_pem(certificate: trustme.LeafCert) -> bytes:
    """Return key and chain as Java reads them: the key in PKCS #8."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
