"""The generated rights, granted on a secured Kafka."""

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from combee.core.rights import Right
from support.secured import Grant, SecuredKafka


def grant_of(right: Right) -> Grant:
    """Return a right as the tests' broker takes it."""
    name = "" if right.resource == "cluster" else f"{right.name}*" if right.prefixed else right.name
    operation = re.sub(r"(?<!^)(?=[A-Z])", "-", right.operation).lower()
    return Grant(resource=right.resource, name=name, operation=operation)


async def grant_all(secured: SecuredKafka, rows: Iterable[tuple[str, str, Right]]) -> None:
    """Grant what ``combee topics acls`` shows."""
    by_principal = groupby(sorted(rows, key=itemgetter(1)), key=itemgetter(1))
    for principal, granted in by_principal:
        await secured.grant(principal, *(grant_of(right) for _, _, right in granted))
