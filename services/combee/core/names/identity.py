"""Deterministic names: every id is a hash of its subject, so a repeat has the same id.

Ids of traces, reflections and commands are their producers' own, and unique within their playbook only.

A reflection's *identity* combines the id under which it was sent with its proven source: two sources may use one id
without a conflict. It is computed where a record enters; from there on it is the reflection's id.
"""

import json
import re
from collections.abc import Iterable, Mapping

from combee.core.names.sources import UNPROVEN
from combee_schemas.base import MAX_PLAYBOOK_NAME, Message, Source
from combee_schemas.digests import digest
from combee_schemas.records import IDENTITY_HEADER, PROOF_HEADER, Headers, header
from combee_schemas.reflection import Reflection

MARK = "~by~"
"""Separator between an id and its owner; an id sent with this mark is marked once more."""
MAX_ID, MAX_OWNER = 200, 100


def owner_of(source: Source | None) -> str:
    """Return the owner of an id from a verified source; empty: without a proof the id is everybody's.

    If one source alone may write, nothing is unproven, and its ids stand as they are.
    """
    return source.name if source is not None and source.proven not in {"", "prefix"} else ""


def identity_of(sent_id: str, owner: str) -> str:
    """Return the identity of an owner's id (empty owner: unproven); identities are unique."""
    if not owner and MARK not in sent_id:
        return sent_id
    # No name contains the mark: the text behind the last mark is the whole owner.
    name = owner.replace("%", "%25").replace("~", "%7E") or UNPROVEN
    identity = f"{sent_id}{MARK}{name}"
    if len(identity) <= MAX_ID:
        return identity
    name = name if len(name) <= MAX_OWNER else digest("owner", name).hex()
    return f"{_short(sent_id)}{MARK}{name}"


def _short(sent_id: str) -> str:
    return digest("id", sent_id).hex()


def is_sent_as(identity: str, sent_id: str) -> bool:
    """Return whether a requested id means this identity: the id as it was sent, or its full name."""
    stem, mark, _ = identity.rpartition(MARK)
    if mark and stem in {sent_id, _short(sent_id)}:
        return True
    return sent_id in {identity, full_name(identity)}


def full_name(identity: str) -> str:
    """Return the name that means this identity alone, if several were sent under one id."""
    return identity if MARK in identity else f"{identity}{MARK}{UNPROVEN}"


def meant_by(sent_id: str, identities: Iterable[str]) -> list[str]:
    """Return the identities meant by a requested id; a full name means only its own."""
    matches = [identity for identity in dict.fromkeys(identities) if is_sent_as(identity, sent_id)]
    exact = [identity for identity in matches if full_name(identity) == sent_id]
    return exact or matches


def claimed_identities(sent_id: str, source: Source | None, headers: Headers) -> tuple[str, ...]:
    """Return the identities that a record may have, judged without the secrets; the likeliest first."""
    plain = (identity_of(sent_id, ""), sent_id) if MARK in sent_id else (sent_id,)
    owner = claimed_owner(source, headers)
    return (identity_of(sent_id, owner), *plain) if owner else plain


def claimed_owner(source: Source | None, headers: Headers) -> str:
    """Return the source that a record has a proof of, judged without the secrets; empty: none."""
    return source.name if source is not None and header(headers, PROOF_HEADER) is not None else ""


def given_identity(headers: Headers) -> str:
    """Return the identity under which a copied reflection counted at its origin; empty: none is given."""
    return (header(headers, IDENTITY_HEADER) or b"").decode(errors="replace")[:MAX_ID]


def received_identity(headers: Headers, sent_id: str, source: Source | None, *, proves: bool) -> str:
    """Return the identity of a reflection under its verified source; ``proves``: whether any source can be proven.

    Otherwise there is only one source: ids stay as sent, or as in the log from which a replay copied them.
    """
    if proves:
        return identity_of(sent_id, owner_of(source))
    given = given_identity(headers)
    return given if given and is_sent_as(given, sent_id) else sent_id


def batch_id(playbook: str, sequence: int) -> str:
    """Return the id of a playbook's ``sequence``-th batch."""
    return "b-" + digest("batch", playbook, sequence).hex()


def node_id(batch: str, level: int, index: int) -> str:
    """Return the id of one node of a batch's tree."""
    return "n-" + digest("node", batch, level, index).hex()


def reflection_id(playbook: str, trace_id: str, owner: str = "") -> str:
    """Return the id of the reflection that ``reflect`` derives from an owner's trace."""
    return "r-" + digest("reflection", playbook, trace_id, *([owner] if owner else ())).hex()


def derived_ids(playbook: str, trace_id: str, owner: str = "") -> tuple[str, ...]:
    """Return the identities that the reflection of a trace may have in a playbook.

    A proven trace has two, with and without its owner: *reflect* may not vouch for its results.
    """
    own_id = reflection_id(playbook, trace_id, owner)
    return (identity_of(own_id, owner), own_id) if owner else (own_id,)


def is_derived(reflection: Reflection) -> bool:
    """Return whether *reflect* derived a reflection from its trace, judged by its id."""
    if reflection.trace_id is None:
        return False
    owners = {"", reflection.source.name} if reflection.source else {""}
    return any(
        reflection.reflection_id in derived_ids(reflection.playbook, reflection.trace_id, owner)
        for owner in owners
    )


CIRCUMSTANCE: Mapping[str, bool | set[str]] = {
    **dict.fromkeys(("created_at_ms", "issued_at_ms", "usage", "trace_digest"), True),
    "shown": {"digests"},
    "source": {"proven"},
}
"""Fields in which two copies of one content may differ."""


def similar_name(text: str) -> str:
    """Return the valid playbook name that is most similar to a text."""
    parts = (re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-._") for part in text.split("/"))
    return "/".join(filter(None, parts))[:MAX_PLAYBOOK_NAME].rstrip("/") or "default"


def fingerprint(message: Message) -> str:
    """Return a value equal for two messages with the same content; empty if it is unknown.

    A reflection derived from a trace has that trace's fingerprint: asked again, a model uses other words.
    """
    if isinstance(message, Reflection) and is_derived(message):
        return message.trace_digest
    # Defaults are left out, so that a field added later changes no fingerprint.
    body = message.model_dump(mode="json", exclude=CIRCUMSTANCE, exclude_defaults=True)
    return digest(message.type, json.dumps(body, sort_keys=True)).hex()


def content_id(kind: str, *parts: str) -> str:
    """Return an id for input without one: the same content has the same id."""
    return f"{kind}-" + digest(kind, *parts).hex()


def batch_seed(playbook: str, sequence: int, member_ids: tuple[str, ...], salt: str = "") -> int:
    """Return the seed that shuffles a batch: 63 bits, fixed by its content (and a salt, if configured)."""
    salted = ("salt", salt) if salt else ()
    return int.from_bytes(digest("seed", playbook, sequence, *member_ids, *salted)[:8], "big") >> 1
