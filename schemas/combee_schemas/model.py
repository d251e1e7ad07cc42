"""What a language model is asked and what it answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from combee_schemas.base import Usage

CHARS_PER_TOKEN = 4
"""A rough measure, good enough to bound prompts before a tokenizer has seen them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a model is asked: the unchanging part first, then the data, then the shape of the reply."""

    system: str
    user: str
    reply_name: str
    reply_schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of the reply; empty means free text."""
    optional: frozenset[str] = frozenset()
    """Keys that a strict server must give (its schemas know no optional ones) and any other may leave out."""
    cache_key: str = ""
    """What prompts that begin alike have in common: a server keeps them near one cache; empty: not said."""
    entry_ids: tuple[str, ...] | None = None
    """The entries of the playbook that it shows; None: all of them."""
    owner: str = ""
    """Whose question it is, such as a playbook's: owners take turns where not all can be asked at once."""
    check: Callable[[str], str | None] | None = None
    """Says what is wrong with a free text, so that the model is asked again; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered: parsed JSON (free text under ``text``) and its cost."""

    body: Mapping[str, Any]
    usage: Usage
    request: str = ""
    """SHA-256 of the request that this answers, as it was sent; empty: unknown."""


def request_body(messages: Sequence[Mapping[str, str]], parameters: Mapping[str, Any]) -> bytes:
    """Return a whole request as JSON, always the same bytes: messages; model, schema and options as parameters."""
    whole = {**parameters, "messages": [dict(message) for message in messages]}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def request_hash(messages: Sequence[Mapping[str, str]], parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a whole request."""
    return sha256(request_body(messages, parameters)).hexdigest()
