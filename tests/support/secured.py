"""A Kafka with TLS, SCRAM and ACLs on loopback: everything is denied that a test has not granted."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest
from cryptography.hazmat.primitives import serialization

from combee.adapters.embedded_kafka import EmbeddedKafka
from combee.adapters.embedded_kafka.ports import LOOPBACK, free_ports
from combee.adapters.kafka import is_ready

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
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER = "kafka-cluster"


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
    bootstrap_servers: str
    ca_file: Path
    other_ca_file: Path
    passwords: Mapping[str, str]

    def environment(self, user: str, **changes: str) -> dict[str, str]:
        """Return the settings with which ``user`` connects, as a person would export them."""
        return {
            "COMBEE_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "COMBEE_SECURITY_PROTOCOL": "SASL_SSL",
            "COMBEE_SASL_USERNAME": user,
            "COMBEE_SASL_PASSWORD": self.passwords[user],
            "COMBEE_SSL_CAFILE": str(self.ca_file),
            **changes,
        }

    async def grant(self, user: str, *grants: Grant) -> None:
        """Allow ``user`` these operations."""
        await self._tell(CreateAclsRequest(*self._rule(user, grant), ALLOW) for grant in grants)

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
        return RESOURCES[grant.resource], name, pattern, f"User:{user}", "*", OPERATIONS[grant.operation]

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


@asynccontextmanager
async def secured_kafka(
    folder: Path, env: Mapping[str, str], users: Iterable[str]
) -> AsyncIterator[SecuredKafka]:
    """Start a broker that outsiders reach by SASL_SSL only; tests administrate it on its inner listener."""
    authority, other_authority = trustme.CA(), trustme.CA()
    ca_file, other_ca_file, identity = folder / "ca.pem", folder / "other-ca.pem", folder / "broker.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    other_authority.cert_pem.write_to_path(str(other_ca_file))
    # Not for localhost: a client that connects there meets a name that the certificate has not.
    identity.write_bytes(_java_pem(authority.issue_cert(LOOPBACK)))
    (outer,) = free_ports(1)
    passwords = {user: f"{user}-password" for user in users}
    kafka = EmbeddedKafka(
        folder / "kafka",
        ready=is_ready,
        env=env,
        scram_users=passwords,
        extra_properties={
            "listeners+": f"OUTER://{LOOPBACK}:{outer.broker}",
            "advertised.listeners+": f"OUTER://{LOOPBACK}:{outer.broker}",
            "listener.security.protocol.map+": "OUTER:SASL_SSL",
            "listener.name.outer.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.outer.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.outer.ssl.keystore.type": "PEM",
            "listener.name.outer.ssl.keystore.location": str(identity),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            # The inner listener is the tests' own.
            "super.users": "User:ANONYMOUS",
        },
    )
    async with kafka:
        yield SecuredKafka(
            kafka=kafka,
            bootstrap_servers=f"{LOOPBACK}:{outer.broker}",
            ca_file=ca_file,
            other_ca_file=other_ca_file,
            passwords=passwords,
        )


def _java_pem(certificate: trustme.LeafCert) -> bytes:
    """Return key and chain as Java reads them: the key in PKCS #8."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
