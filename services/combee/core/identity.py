"""Deterministic names: every id is a hash of what it names, so a repeat has the same id.

Ids of traces, reflections and commands are their producers' own: each means something only within its playbook.
"""

import json
import re
from collections.abc import Mapping

from combee_schemas.base import MOST_NAME, Message
from combee_schemas.digests import digest
from combee_schemas.reflection import Reflection


def batch_id(playbook: str, sequence: int) -> str:
    """Return the id of a playbook's ``sequence``-th batch."""
    return "b-" + digest("batch", playbook, sequence).hex()


def node_id(batch: str, level: int, index: int) -> str:
    """Return the id of one node of a batch's tree."""
    return "n-" + digest("node", batch, level, index).hex()


def reflection_id(playbook: str, trace_id: str) -> str:
    """Return the id of the reflection that ``reflect`` derives from a playbook's trace."""
    return "r-" + digest("reflection", playbook, trace_id).hex()


def earlier_reflection_id(trace_id: str) -> str:
    """Return the id that was derived from a trace before ids were scoped by playbook; logs are full of them."""
    return "r-" + digest("reflection", trace_id).hex()


def derived_ids(playbook: str, trace_id: str) -> tuple[str, str]:
    """Return the ids under which a playbook may hold what was derived from a trace: today's, and the earlier one."""
    return reflection_id(playbook, trace_id), earlier_reflection_id(trace_id)


def known_ids(reflection: Reflection) -> tuple[str, ...]:
    """Return all ids that make a reflection a repeat within its playbook: its own, and if derived both of those."""
    if reflection.trace_id is not None:
        derived = derived_ids(reflection.playbook, reflection.trace_id)
        if reflection.reflection_id in derived:
            return derived
    return (reflection.reflection_id,)


CIRCUMSTANCE: Mapping[str, bool | set[str]] = {
    **dict.fromkeys(("created_at_ms", "issued_at_ms", "usage", "trace_digest"), True),
    "shown": {"digests"},
    "source": {"proven"},
}
"""Fields in which two sendings of one content may differ."""


def similar_name(text: str) -> str:
    """Return the name a playbook may have that is most like a text."""
    parts = (re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-._") for part in text.split("/"))
    return "/".join(filter(None, parts))[:MOST_NAME].rstrip("/") or "default"


def fingerprint(message: Message) -> str:
    """Return what two messages of one content have in common; empty where it is unknown.

    A reflection derived from a trace has that trace's: asked a second time, a model uses other words.
    """
    if isinstance(message, Reflection) and len(known_ids(message)) > 1:
        return message.trace_digest
    # Without defaults, so that a field that is added later changes no fingerprint.
    body = message.model_dump(mode="json", exclude=CIRCUMSTANCE, exclude_defaults=True)
    return digest(message.type, json.dumps(body, sort_keys=True)).hex()


def content_id(kind: str, *parts: str) -> str:
    """Return an id for input that came without one: the same content has the same id."""
    return f"{kind}-" + digest(kind, *parts).hex()


def batch_seed(playbook: str, sequence: int, member_ids: tuple[str, ...], salt: str = "") -> int:
    """Return the seed that shuffles a batch: 63 bits, fixed by its content (and a salt, if there is one)."""
    salted = ("salt", salt) if salt else ()
    return int.from_bytes(digest("seed", playbook, sequence, *member_ids, *salted)[:8], "big") >> 1
