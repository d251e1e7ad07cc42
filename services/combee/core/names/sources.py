"""Sources: who taught something, which names count, and how a name is proven; pure.

A producer declares a name in the record and may prove it in a header: a signature of topic, name and the record's
bytes. Kafka does not tell consumers who wrote a record, so a name without a proof is a claim. All records without a
proof share one source.
"""

import base64
import binascii
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from combee_schemas.base import ProvenBy, Source, SourceNames
from combee_schemas.playbook import Entry
from combee_schemas.records import PROOF_HEADER, Headers, Outgoing, header
from combee_schemas.scan import Seen
from combee_schemas.topics import Published, outgoing

UNPROVEN = "unproven"
"""Source of all records without a proof or a name."""
GATEWAY_KEY = "key:"
"""Prefix of the name of a gateway's key; no declared name begins with it."""
SECRET, KEY, SERVICES = "hmac-sha256", "ed25519", "services"
"""Schemes of the proof header: a source's secret, its private key, or the services' secret."""
_ONE_WORD = re.compile(r'[^\s()"]+')
MAX_NAME = 80
MAX_KEY_NAME = MAX_NAME - len(GATEWAY_KEY)
"""Maximum length of a gateway key's name: cut short, two keys would be one source."""

Header = tuple[str, bytes]
Check = Callable[[bytes, bytes], bool]
"""Returns whether a signature, the second argument, belongs to a message."""


def signed_bytes(topic: str, name: str, value: bytes) -> bytes:
    """Return the signed bytes of a proof: the topic without its prefix, the source's name, and the record's bytes."""
    return b"\0".join((b"combee-source", topic.encode(), name.encode(), value))


def with_secret(secret: bytes) -> Check:
    """Return a check of signatures made with a shared secret."""
    return lambda message, signature: hmac.compare_digest(hmac.digest(secret, message, "sha256"), signature)


def proof(scheme: str, signature: bytes) -> Header:
    """Return the header of a signature."""
    return PROOF_HEADER, f"{scheme}:".encode() + base64.b64encode(signature)


def secret_proof(secret: bytes, topic: str, name: str, value: bytes, *, scheme: str = SECRET) -> Header:
    """Return the header that proves a name with a shared secret."""
    return proof(scheme, hmac.digest(secret, signed_bytes(topic, name, value), "sha256"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSource:
    """The effective source of a record."""

    source: Source | None
    is_forged: bool = False
    """Whether its proof is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSources:
    """The checks that prove sources in a deployment."""

    checks: Mapping[str, tuple[ProvenBy, Check]] = field(default_factory=lambda: MappingProxyType({}))
    """Check per source name."""
    services: Check | None = None
    """Check of the secret with which gateway and reflect vouch for verified records."""
    prefix_owner: str = ""
    """The only source with the right to write to this deployment's topics; empty: there are several."""

    @property
    def can_prove(self) -> bool:
        """Whether any source can be proven; otherwise all records are one source's."""
        return bool(self.checks or self.services is not None or self.prefix_owner)

    def effective(self, topic: str, value: bytes, headers: Headers, source: Source | None) -> EffectiveSource:
        """Return the effective source of a record; without a valid proof it keeps the declared name, unproven."""
        sent_proof = header(headers, PROOF_HEADER)
        if sent_proof is None:
            return EffectiveSource(source=self._unsigned(source))
        scheme, signature = _scheme_and_signature(sent_proof)
        if source is not None:
            message = signed_bytes(topic, source.name, value)
            if scheme == SERVICES and self.services is not None and self.services(message, signature):
                return EffectiveSource(source=source)
            by, check = self.checks.get(source.name, ("", _never))
            if scheme == _SCHEMES.get(by) and check(message, signature):
                return EffectiveSource(source=source.model_copy(update={"proven": by}))
        return EffectiveSource(source=self._unsigned(source), is_forged=True)

    def _unsigned(self, source: Source | None) -> Source | None:
        if self.prefix_owner:
            return Source(name=self.prefix_owner, proven="prefix")
        if source is None or not source.proven:
            return source
        return source.model_copy(update={"proven": ""})


NOBODY = KnownSources()
_SCHEMES: Mapping[ProvenBy, str] = {"secret": SECRET, "key": KEY}


def _never(_message: bytes, _signature: bytes) -> bool:
    return False


def _scheme_and_signature(sent_proof: bytes) -> tuple[str, bytes]:
    scheme, _, signature = sent_proof.partition(b":")
    try:
        return scheme.decode("ascii", errors="replace"), base64.b64decode(signature, validate=True)
    except binascii.Error:
        return "", b""


def is_vouched(headers: Headers) -> bool:
    """Return whether a record's proof is that of a service; `KnownSources.effective` tells whether it is valid."""
    scheme, _ = _scheme_and_signature(header(headers, PROOF_HEADER) or b"")
    return scheme == SERVICES


def gateway_source(key: str, *, proven: bool) -> Source:
    """Return the source of a request with a gateway's key, whatever its sender claims."""
    return Source(name=f"{GATEWAY_KEY}{key}", proven="gateway" if proven else "")


Sourced = TypeVar("Sourced", bound=Published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """A producer that declares its name and proves it with a shared secret, if it has one."""

    name: str
    secret: bytes | None = field(default=None, repr=False)

    def owner_of(self, source: Source | None) -> str:
        """Return the owner of the ids of signed messages; empty: they are not signed."""
        return self.name if self.secret is not None and (source is None or source.name == self.name) else ""

    def declared(self, message: Sourced) -> Sourced:
        """Return a message with its source, unless it names one already."""
        source = Source(name=self.name)
        # A copy has the class of its message.
        return message if message.source else message.model_copy(update={"source": source})  # type: ignore[return-value]

    def signed(self, outgoing: Outgoing, source: Source | None) -> Outgoing:
        """Return the record of a message with its proof, if the message names this source."""
        if self.secret is None or source is None or source.name != self.name:
            return outgoing
        proving = secret_proof(self.secret, outgoing.topic, self.name, outgoing.value or b"")
        return replace(outgoing, headers=(*outgoing.headers, proving))


def declared(message: Published, signer: Signer | None) -> Outgoing:
    """Return the record of a producer's message, with its declared source and the proof."""
    if signer is None:
        return outgoing(message)
    message = signer.declared(message)
    return signer.signed(outgoing(message), message.source)


# ---- which names count


def source_name(source: Source | None, names: SourceNames) -> str:
    """Return the name under which a record counts.

    Where declared names count, it is the declared one, or empty; where only proven names count, it is the proven
    one, or ``unproven``.
    """
    if names == "declared":
        return source.name if source else ""
    return source.name if source and source.proven else UNPROVEN


def counted_name(source: Source | None, names: SourceNames) -> str:
    """Return the name under which a record is counted and revoked; ``unproven`` if it has none."""
    return source_name(source, names) or UNPROVEN


def is_from(source: Source | None, name: str, names: SourceNames) -> bool:
    """Return whether the rule ``source:NAME`` selects a record: its own, or one that only claims this name."""
    claims = source is not None and not source.proven and source.name == name
    return claims or counted_name(source, names) == name


def names_of(seen: Iterable[Seen], names: SourceNames) -> dict[str, str]:
    """Return the counting names of reflections by their ids, for those with a name."""
    named = ((reflection.reflection_id, source_name(reflection.source, names)) for reflection in seen)
    return {reflection_id: name for reflection_id, name in named if name}


def supporters(entry: Entry) -> tuple[str, ...]:
    """Return the sources that support an entry; if one is proven, unproven ones add none."""
    return tuple(source for source in entry.sources if source != UNPROVEN) or (UNPROVEN,)


def counting(names: Collection[str], entry: Entry | None = None) -> frozenset[str]:
    """Return the sources that count for or against an entry: next to proven ones unproven ones do not."""
    proven = frozenset(names) - {UNPROVEN}
    is_proven = entry is not None and supporters(entry) != (UNPROVEN,)
    return proven if is_proven or proven else frozenset(names)


def in_turn(
    said_by: Sequence[Collection[str]],
    *,
    sizes: Sequence[int] | None = None,
    order: Iterable[int] | None = None,
) -> list[int]:
    """Return the places of texts, of each source in turn: where room is short, nobody takes that of others.

    ``said_by`` are the sources of each text. ``sizes``: what each takes of the room, by default the same. ``order``:
    the places in the order in which one source's come, by default as they are. A text of several sources comes when
    that one of them has its turn which has taken least. Texts without a source count as those of one more.
    """
    taken, ranks = Counter[str](), dict[int, int]()
    for place in range(len(said_by)) if order is None else order:
        names, size = said_by[place] or {""}, sizes[place] if sizes else 1
        ranks[place] = min(taken[name] for name in names) + size
        taken.update(dict.fromkeys(names, size))
    return sorted(ranks, key=ranks.__getitem__)


def sources_text(counts: Mapping[str, int]) -> str:
    """Return the number of reflections per source in words; empty if no source is known."""
    if not counts.keys() - {UNPROVEN}:
        return ""
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def name_text(name: str) -> str:
    """Return a name or an id that others chose: in quotation marks if it could pass for what stands around it."""
    return name if _ONE_WORD.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def source_text(source: Source | None) -> str:
    """Return a source in words."""
    if source is None:
        return UNPROVEN
    proof = f"proven by {source.proven}" if source.proven else UNPROVEN
    return f"{name_text(source.name)} ({proof})"
