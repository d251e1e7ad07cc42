"""The sources of records: verified when a service reads a record, vouched for when it writes one."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import structlog

from combee.adapters.ports import Outgoing, Record
from combee.core.names.identity import (
    MAX_ID,
    identity_of,
    is_derived,
    owner_of,
    received_identity,
    reflection_id,
)
from combee.core.names.sources import (
    NOBODY,
    SERVICES,
    EffectiveSource,
    KnownSources,
    is_vouched,
    secret_proof,
)
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.topics import key_of
from combee_schemas.trace import Trace

logger = structlog.get_logger()
M = TypeVar("M", Trace, Outcome)
Run = TypeVar("Run", Trace, Reflection)

MAX_NAMES, MAX_TAGS, MAX_TEXTS = 2_500, 500, 200
"""Maximum names in a list of a run, as many as a playbook has entries at most, tags, and texts with a name."""


class Provenance:
    """Verifies sources and vouches for them; ``on_forged`` is called with the topic of each forged proof."""

    def __init__(
        self,
        known: KnownSources = NOBODY,
        *,
        services_secret: bytes | None = None,
        on_forged: Callable[[str], None] = lambda _topic: None,
    ) -> None:
        self._known = known
        self._secret = services_secret
        self._on_forged = on_forged

    @property
    def vouches(self) -> bool:
        """Whether this service has a secret with which it proves the sources of what it writes."""
        return self._secret is not None

    def is_by_reflect(self, record: Record, reflection: Reflection) -> bool:
        """Return whether *reflect* wrote a verified reflection; without a secret only its id tells."""
        is_verified = reflection.source is not None and bool(reflection.source.proven)
        return is_derived(reflection) and ((is_verified and is_vouched(record.headers)) or not self.vouches)

    def reflection(self, record: Record, *, is_reread: bool = False) -> Reflection:
        """Return a reflection with its verified source and the id that its source may use.

        ``is_reread``: the record was read before, so a forged proof is not counted again.
        """
        reflection = _slim(topics.REFLECTIONS.read(record))
        source = self._source(record, reflection.source, is_reread=is_reread)
        proves = self._known.can_prove
        own_id = received_identity(record.headers, reflection.reflection_id, source, proves=proves)
        if source is reflection.source and own_id == reflection.reflection_id:
            return reflection
        return reflection.model_copy(update={"source": source, "reflection_id": own_id})

    def derived_ids(self, trace: Trace) -> tuple[str, str]:
        """Return the id under which a verified trace's reflection is written, and its identity."""
        owner = owner_of(trace.source)
        own_id = reflection_id(trace.playbook, trace.trace_id, owner)
        return own_id, identity_of(own_id, owner if self.vouches else "")

    def trace(self, record: Record) -> Trace:
        """Return a trace with its verified source."""
        return self._verified(record, _slim(topics.TRACES.read(record)))

    def outcome(self, record: Record, *, is_reread: bool = False) -> Outcome:
        """Return an outcome with its verified source; ``is_reread``: see ``reflection``."""
        return self._verified(record, topics.OUTCOMES.read_own(record), is_reread=is_reread)

    def _verified(self, record: Record, message: M, *, is_reread: bool = False) -> M:
        source = self._source(record, message.source, is_reread=is_reread)
        return message if source is message.source else message.model_copy(update={"source": source})

    def _source(self, record: Record, claimed: Source | None, *, is_reread: bool = False) -> Source | None:
        effective: EffectiveSource = self._known.effective(
            record.topic, record.value or b"", record.headers, claimed
        )
        if effective.is_forged and not is_reread:
            self._on_forged(record.topic)
            logger.warning(
                "forged_proof",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                key=key_of(record)[:MAX_ID],
                claimed=claimed.name if claimed else "",
            )
        return effective.source

    def vouched(self, outgoing: Outgoing, source: Source | None) -> Outgoing:
        """Return a record with a proof of its source, if the source is proven and this service may vouch for it."""
        if self._secret is None or source is None or not source.proven:
            return outgoing
        header = secret_proof(
            self._secret, outgoing.topic, source.name, outgoing.value or b"", scheme=SERVICES
        )
        return replace(outgoing, headers=(*outgoing.headers, header))


def _slim(run: Run) -> Run:
    """Return a run, or what was learned from it, with the first of very many names.

    A name takes ten times its bytes once it is decoded, a tag thirty times, and a service holds hundreds of runs.
    """
    fewer = _firsts(run, bullet_ids=MAX_NAMES, bullet_tags=MAX_TAGS, side_info=MAX_TEXTS, metadata=MAX_TEXTS)
    if run.shown is not None and (shown := _firsts(run.shown, entry_ids=MAX_NAMES, digests=MAX_NAMES)):
        fewer["shown"] = run.shown.model_copy(update=shown)
    return run.model_copy(update=fewer) if fewer else run


def _firsts(value: object, **most: int) -> dict[str, Any]:
    """Return the first items of the fields that have more."""
    found: dict[str, Any] = {name: getattr(value, name, ()) for name in most}
    return {
        name: dict(islice(items.items(), most[name])) if isinstance(items, dict) else items[: most[name]]
        for name, items in found.items()
        if len(items) > most[name]
    }
