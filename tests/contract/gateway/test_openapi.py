"""The OpenAPI document is exact: whatever it allows is answered as it says, whatever it forbids is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Log
from combee.gateway.app import build
from combee.gateway.context import context_of
from combee.process.settings.loading import load_settings
from support.clock import ManualClock
from support.gateway import in_a_thread, labelled, published, version

EXAMPLES = 10
LONGEST_WAIT_S = 60


def waits(case: Any) -> bool:
    """Return whether the document lets this command wait: nobody shuffles here, so it would be for nothing."""
    try:
        return (
            case.path.endswith(("/flush", "/branch"))
            and 0 < float(str(case.query.get("wait_s"))) <= LONGEST_WAIT_S
        )
    except ValueError:
        return False


EXPECTED = {
    # 400: as the schema says, and it cannot be done, such as a text that is no playbook.
    "positive_data_acceptance": ["2xx", "3xx", "400", "404", "409"],
    # 207: of a batch, an item that is not as the schema says is refused by itself.
    "negative_data_rejection": ["207", "400", "404", "405", "413", "415", "422"],
}


async def _prepare(log: Log) -> None:
    await published(log, *(version("support/refunds", number) for number in (1, 2, 3)), version("a", 1))
    await labelled(log, "support/refunds", "production", 2)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with in_a_thread(_prepare) as found:
        yield found


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Keep one connection for thousands of requests; where a proxy of the machine is, none asks for itself."""
    with requests.Session() as kept:
        kept.trust_env = False
        yield kept


def _document() -> dict[str, Any]:
    clock = ManualClock()
    return build(context_of(MemoryLog(clock), load_settings(), clock)).openapi()


CONFIG = SchemathesisConfig.from_dict(
    {"checks": {name: {"expected-statuses": statuses} for name, statuses in EXPECTED.items()}}
)
schema = schemathesis.openapi.from_dict(_document(), config=CONFIG).exclude(path_regex="/events$")


@pytest.mark.timeout(300)
@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_endpoint_does_as_the_document_says(case: Any, address: str, session: requests.Session) -> None:
    if waits(case):
        case.query["wait_s"] = 0
    case.call_and_validate(base_url=address, session=session, timeout=20)


def test_no_body_may_have_fields_that_the_document_does_not_name() -> None:
    schemas = _document()["components"]["schemas"]
    bodies = {name for name in schemas if name.startswith("New")} | {
        *("Promote", "Rollback", "Edit", "Import", "Revoke", "Adopt", "NewBranch", "CommandBody"),
    }
    assert {"NewReflection", "NewTrace", "NewBulletTag", "NewShown", "NewUsage"} <= bodies
    assert [name for name in sorted(bodies) if schemas[name].get("additionalProperties") is not False] == []
