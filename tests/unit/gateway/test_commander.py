"""Who may give commands on a page: whoever may over HTTP."""

import pytest

from combee.gateway.access.access import commander
from combee.gateway.access.keys import ANYBODY, SCOPES, Caller, Keyring
from combee.gateway.problems import Refusal
from support.rows import each_row

OPERATOR = Caller(
    name="operators", scopes=frozenset(SCOPES), namespaces=("support/",), expires_ms=100, digest=b"o"
)
READER = Caller(name="readers", scopes=frozenset({"playbooks:read"}), digest=b"r")
KEYS = Keyring([OPERATOR, READER])


def test_a_key_with_the_scope_may_command_the_playbooks_of_its_name_spaces() -> None:
    assert commander(KEYS, OPERATOR, "support/refunds", 50, is_judged=True) is OPERATOR


@each_row(
    ("caller", "playbook", "now_ms", "why"),
    [
        (None, "support/refunds", 50, "a key with the scope playbooks:admin is needed"),
        (READER, "support/refunds", 50, "this key lacks the scope playbooks:admin"),
        (OPERATOR, "sales/offers", 50, "this key's name spaces do not include sales/offers"),
        (OPERATOR, "support/refunds", 100, "a key with the scope playbooks:admin is needed"),
        (ANYBODY, "support/refunds", 50, "a key with the scope playbooks:admin is needed"),
    ],
    ids=["none", "scope", "name-space", "expired", "taken-out"],
)
def test_others_are_refused_and_told_why(caller: Caller | None, playbook: str, now_ms: int, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        commander(KEYS, caller, playbook, now_ms, is_judged=False)
    assert refused.value.problem.detail == why


def test_without_keys_anybody_on_loopback_may_as_over_http() -> None:
    assert commander(Keyring(), None, "support/refunds", 0, is_judged=False) is ANYBODY


def test_without_keys_nobody_may_where_a_judge_is_on() -> None:
    with pytest.raises(Refusal, match="combee up"):
        commander(Keyring(), None, "support/refunds", 0, is_judged=True)
