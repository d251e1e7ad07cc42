"""Rights of each role on a cluster that denies by default: Kafka's ACLs, derived from the map of topics."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from combee_schemas.topics import TOPICS

Resource = Literal["topic", "group", "transactional-id", "cluster"]

GROUPS = ("reflect", "shuffle", "scan", "publish", "control")
"""Roles that are consumer groups of the same name."""
TRANSACTIONS = ("shuffle", "publish", "control")
"""Roles that write in transactions; the transactional id is ``ROLE-PARTITION``."""
ROLES = (*GROUPS, "evaluate", "gateway", "agents", "operators")
"""Roles with a principal: the services, agents that use Kafka directly, and operators of the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One of Kafka's operations on one resource, or on all resources with a name prefix."""

    operation: str
    resource: Resource
    name: str
    prefixed: bool = False


def rights(role: str, prefix: str) -> tuple[Right, ...]:
    """Return exactly the rights that a role needs under a topic prefix.

    Operators may do everything under the prefix. Topics of other roles are named one by one, because a right on all
    topics beginning with ``combee.`` includes ``combee.b.reflections``.
    """
    everything = f"{prefix}."
    idempotent = Right(operation="IdempotentWrite", resource="cluster", name="kafka-cluster")
    if role == "operators":
        kinds: tuple[Resource, ...] = ("topic", "group", "transactional-id")
        return (
            *(Right(operation="All", resource=kind, name=everything, prefixed=True) for kind in kinds),
            idempotent,
        )
    names = {f"{prefix}.{topic.name}": topic for topic in TOPICS}
    read = [_on(name, "Read") for name, topic in names.items() if role in topic.read_by]
    written = [_on(name, "Write") for name, topic in names.items() if role in topic.written_by]
    # Without the right to describe a topic, the broker reports it as unknown instead of forbidden. Every service
    # checks all topics before it starts.
    checks = ["Describe"] if role == "agents" else ["Describe", "DescribeConfigs"]
    looks = [Right(operation=check, resource="topic", name=everything, prefixed=True) for check in checks]
    group = [Right(operation="Read", resource="group", name=f"{prefix}.{role}")] if role in GROUPS else []
    if role == "gateway":  # it shows what waits, and a pause must end before that expires
        waiting = ("reflect", "shuffle")
        group = [Right(operation="Describe", resource="group", name=f"{prefix}.{name}") for name in waiting]
    transaction = [
        Right(operation=operation, resource="transactional-id", name=f"{prefix}.{role}-", prefixed=True)
        for operation in ("Write", "Describe")
        if role in TRANSACTIONS
    ]
    return (*looks, *read, *written, *group, *transaction, *([idempotent] if written else []))


def _on(name: str, operation: str) -> Right:
    return Right(operation=operation, resource="topic", name=name)


# ---- output

Granted = Sequence[tuple[str, str, Right]]
"""Role, principal (``User:NAME``), right."""


def granted(principals: Mapping[str, str], prefix: str) -> Granted:
    """Return the rights of every role under its principal, by default ``User:combee-ROLE``."""
    return [
        (role, principals.get(role, f"User:combee-{role}"), right)
        for role in ROLES
        for right in rights(role, prefix)
    ]


def as_kafka_acls(rows: Granted) -> str:
    """Return commands of Kafka's own tool; ``$KAFKA`` holds its ``--bootstrap-server`` and ``--command-config``."""
    return "\n".join(
        f"kafka-acls.sh $KAFKA --add --allow-principal '{principal}' --operation {right.operation} {_resource(right)}"
        for _, principal, right in rows
    )


def _resource(right: Right) -> str:
    if right.resource == "cluster":
        return "--cluster"
    pattern = " --resource-pattern-type prefixed" if right.prefixed else ""
    return f"--{right.resource} {right.name}{pattern}"


def as_json(rows: Granted) -> str:
    """Return one object for each right."""
    return json.dumps(
        [{"role": role, "principal": who, **asdict(right)} for role, who, right in rows], indent=2
    )


def as_strimzi(rows: Granted) -> str:
    """Return a ``KafkaUser`` of Strimzi for each principal, as YAML (every JSON text is YAML).

    Raises
    ------
    ValueError
        If Strimzi has no user for a principal: its users are ``User:NAME`` with a password and ``User:CN=NAME`` with
        a certificate, and each is an object of that name.
    """
    users: dict[str, list[Right]] = {}
    for _, principal, right in rows:
        users.setdefault(principal, []).append(right)
    return "\n".join(
        f"---\n{json.dumps(_user(principal, rights), indent=2)}" for principal, rights in users.items()
    )


_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_CERTIFICATE_NAME_CHARS = 64


def _user(principal: str, rights: Iterable[Right]) -> dict[str, object]:
    subject = principal.removeprefix("User:")
    name = subject.removeprefix("CN=")
    has_certificate = name != subject
    too_long = has_certificate and len(name) > _CERTIFICATE_NAME_CHARS
    if too_long or not _OBJECT_NAME.fullmatch(name):
        raise ValueError(
            f"Strimzi has no user {principal}: write User:NAME (a password) or User:CN=NAME (a certificate), NAME in "
            f"small letters, digits, - and ., with a certificate at most {_CERTIFICATE_NAME_CHARS} of them"
        )
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": "kafka"}},
        "spec": {
            "authentication": {"type": "tls" if has_certificate else "scram-sha-512"},
            "authorization": {"type": "simple", "acls": [_acl(right) for right in rights]},
        },
    }


def _acl(right: Right) -> dict[str, object]:
    if right.resource == "cluster":
        return {"resource": {"type": "cluster"}, "operations": [right.operation]}
    kind = "transactionalId" if right.resource == "transactional-id" else right.resource
    pattern = "prefix" if right.prefixed else "literal"
    return {
        "resource": {"type": kind, "name": right.name, "patternType": pattern},
        "operations": [right.operation],
    }


FORMATS: Mapping[str, Callable[[Granted], str]] = {
    "kafka-acls": as_kafka_acls,
    "strimzi": as_strimzi,
    "json": as_json,
}
