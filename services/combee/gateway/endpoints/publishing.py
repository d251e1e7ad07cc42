"""``POST /v1/traces``, ``/v1/reflections``, ``/v1/outcomes``: accepted when Kafka has acknowledged, not before."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from combee.adapters.ports import Outgoing
from combee.core.formats.files import is_name
from combee.core.names.identity import content_id, fingerprint, identity_of, owner_of
from combee.core.names.sources import gateway_source
from combee.core.names.tenants import tenant_of
from combee.core.playbook.shown import with_digests
from combee.core.text.redact import redacted_deep
from combee.gateway.access.access import JSON, allowed, check_json
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.problems import BODY, Refusal, Wrong, busy, invalid, problems, unknowns, wrongs
from combee.gateway.values import Item, Receipt, has_more_values, whole
from combee.process.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.base import Usage, playbook_of
from combee_schemas.codec import CodecError, encode
from combee_schemas.outcome import MAX_CALLER, Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.topics import AnyTopic, Published, outgoing
from combee_schemas.trace import Trace
from combee_schemas.trace_context import TraceContext, with_trace_context

JSON_LINES = (
    "these are JSON lines: send a list of objects that each name their playbook, or use 'combee publish FILE'"
)
MAX_COMPARED = 10
"""Maximum number of refused objects per batch whose unknown fields are compared with the known ones."""
MAX_VALUES = 50_000
"""Maximum number of values in one object: twice what the entries of the largest playbook need. Each value costs many
times its bytes to check."""
ROOM_PARTS, PART_BYTES = 256, 16 << 10
"""Bodies in work, in parts of these bytes; smaller bodies need no room. Decoded they take twenty times as much."""
MAX_TRACED = 10_000
"""Maximum number of playbooks whose traces are counted: anybody can invent a name."""
REMEMBERED = 50_000
"""Number of acknowledged ids kept to recognise repeats; the services recognise older repeats."""
Place = tuple[str, str, str]
"""Topic, playbook and id."""
NAMES = ("playbook", "trace_id", "reflection_id", "run_id")
"""Fields used for look-ups, which are never redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object that agents send."""

    topic: AnyTopic
    prefix: str = ""
    """Prefix of ids that the gateway chooses; empty if the sender gives the id and may use it several times."""

    @property
    def where(self) -> str:
        """Its path."""
        return f"/v1/{self.topic.name}"

    @property
    def id_field(self) -> str:
        """The name of the id's field."""
        return str(self.topic.message.RUN_IDS[0])


TRACES = Kind(topic=topics.TRACES, prefix="t")
KINDS = (
    TRACES,
    Kind(topic=topics.REFLECTIONS, prefix="r"),
    Kind(topic=topics.OUTCOMES),
)


class Publishing:
    """Reads, checks and writes what agents send."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._provenance = Provenance(services_secret=context.settings.sources.services_secret())
        self._acknowledged: OrderedDict[Place, str] = OrderedDict()
        """Fingerprint of the content, by place."""
        self._room, self._turn = asyncio.Semaphore(ROOM_PARTS), asyncio.Lock()

    @asynccontextmanager
    async def room_for(self, body: bytes) -> AsyncIterator[None]:
        """Wait until other bodies leave room for this one, from its decoding until Kafka has acknowledged it.

        Raises
        ------
        TimeoutError
            If they do not leave it in time.
        """
        parts, held = min(ROOM_PARTS, len(body) // PART_BYTES), 0
        try:
            if parts:
                # In turn, or large bodies would wait for each other's parts.
                async with asyncio.timeout(self._context.limits.ack_timeout_s), self._turn:
                    while held < parts:
                        await self._room.acquire()
                        held += 1
            yield
        finally:
            for _ in range(held):
                self._room.release()

    @property
    def most(self) -> int:
        """Maximum number of items per request."""
        return self._context.limits.max_batch

    async def take(self, kind: Kind, caller: Caller, body: bytes) -> tuple[HTTPStatus, Receipt]:
        """Write a body's objects and return the status and receipt.

        Raises
        ------
        Refusal
            If all objects are refused.
        """
        objects, single = self._objects(body)
        results = self._results(kind, caller, objects)
        refusals = [result for result in results if isinstance(result, Refusal)]
        if len(refusals) == len(results):
            raise _all_refused(refusals, single=single)
        receipt = await self._receipt(kind, caller, results)
        return (HTTPStatus.MULTI_STATUS if receipt.refused else HTTPStatus.ACCEPTED), receipt

    async def publish(
        self, kind: Kind, caller: Caller, objects: Sequence[Any], context: TraceContext | None = None
    ) -> Receipt:
        """Write objects converted from another form and return the receipt; their records continue that span."""
        return await self._receipt(kind, caller, self._results(kind, caller, objects), context)

    def _results(self, kind: Kind, caller: Caller, objects: Sequence[Any]) -> list[Published | Refusal]:
        compared, results = 0, list[Published | Refusal]()
        for given in objects:
            result = self._checked(kind, caller, given, are_compared=compared < MAX_COMPARED)
            compared += isinstance(result, Refusal)
            results.append(result)
        return self._within_limits(kind, self._consistent(kind, results))

    async def _receipt(
        self,
        kind: Kind,
        caller: Caller,
        results: Sequence[Published | Refusal],
        context: TraceContext | None = None,
    ) -> Receipt:
        messages = [result for result in results if not isinstance(result, Refusal)]
        repeated = await self._write(kind, caller, messages, context)
        items = [self._item(kind, at, result, repeated) for at, result in enumerate(results)]
        return Receipt(
            accepted=sum(item.status == "accepted" for item in items),
            repeated=sum(item.status == "repeated" for item in items),
            refused=sum(item.status == "refused" for item in items),
            items=tuple(items),
        )

    def _objects(self, body: bytes) -> tuple[list[Any], bool]:
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            why = JSON_LINES if _is_json_lines(body) else f"not JSON: {error}"
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, why) from error
        if not isinstance(value, list):
            return [value], True
        if not 1 <= len(value) <= self.most:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"a batch has 1 to {self.most} items")
        return value, False

    def _checked(self, kind: Kind, caller: Caller, given: Any, *, are_compared: bool) -> Published | Refusal:
        """Return one object as a message that fits a record, or its refusal."""
        if refusal := _unfit(kind, given):
            return refusal
        given = whole(given)
        what, unknown = (
            f"not a {kind.topic.message.type}",
            unknowns(kind.topic.message, given, are_compared=are_compared),
        )
        try:
            fields = {name: value if name in NAMES else redacted_deep(value) for name, value in given.items()}
            if caller.has_key:
                # Before the id is derived: equal reflections of two keys are two reflections.
                fields["source"] = gateway_source(caller.name, proven=self._provenance.vouches).model_dump()
            if kind.prefix and fields.get(kind.id_field) is None:
                fields[kind.id_field] = content_id(kind.prefix, to_json(fields).decode())
            message = kind.topic.message.model_validate_json(to_json(fields), strict=True)
            message = self._with_digests(self._completed(message, caller))
            encode(message)
        except (ValidationError, RecursionError) as error:
            errors = wrongs(error) if isinstance(error, ValidationError) else ()
            return invalid(what, (*unknown, *errors))
        except CodecError as error:
            unwritable = error.__cause__ is not None  # such as a number of more than 64 bits
            status = HTTPStatus.UNPROCESSABLE_ENTITY if unwritable else HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            return Refusal(status, str(error))
        if unknown:
            return invalid(what, unknown)
        if message.lack:
            return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, message.lack)
        if not caller.may_touch(message.playbook):
            return Refusal(HTTPStatus.FORBIDDEN, f"this key's name spaces do not include {message.playbook}")
        # A client's own usage figures would count against the playbook's cap.
        return message.model_copy(update={"usage": Usage()}) if isinstance(message, Reflection) else message

    def _completed(self, message: Published, caller: Caller) -> Published:
        """Return a message with its arrival time, an outcome also with its caller."""
        known: dict[str, object] = {}
        if message.source and message.source.proven and not caller.has_key:
            # A claim proves nothing, so it must not take the ids of a source that is proven.
            known["source"] = message.source.model_copy(update={"proven": ""})
        if not message.created_at_ms:
            known["created_at_ms"] = self._context.clock.now_ms()
        if isinstance(message, Outcome) and not message.caller and caller.has_key:
            known["caller"] = caller.name[:MAX_CALLER]
        return message.model_copy(update=known)

    def _with_digests(self, message: Published) -> Published:
        """Return a message with digests of the entries that its agent was shown; clients send only their ids.

        The client's ``line`` may be any text; it is looked up only if it is the playbook or a branch of it.
        """
        if not isinstance(message, Trace | Reflection) or message.shown is None:
            return message
        line = message.shown.line or message.playbook
        if playbook_of(line) != message.playbook or not is_name(line, line=True):
            return message
        newest = self._context.playbooks.latest(line)
        return message.model_copy(update={"shown": with_digests(message.shown, newest)})

    def _consistent(self, kind: Kind, results: Sequence[Published | Refusal]) -> list[Published | Refusal]:
        """Refuse other content under an id that its playbook already has, as far as it is remembered."""
        first: dict[Place, str] = {}

        def checked(given: Published | Refusal) -> Published | Refusal:
            if isinstance(given, Refusal):
                return given
            place, content = self._place(kind, given), fingerprint(given)
            if content == self._acknowledged.get(place, first.setdefault(place, content)):
                return given
            _, playbook, _ = place
            own = given.run_ids[0]
            detail = f"{playbook} has other content under the id {own}: send this under another id"
            return Refusal(HTTPStatus.CONFLICT, detail)

        return [checked(given) for given in results]

    def _within_limits(self, kind: Kind, results: Sequence[Published | Refusal]) -> list[Published | Refusal]:
        """Refuse new messages of tenants that reached a limit; repeats pass."""
        fresh = [
            None if isinstance(given, Refusal) or self._place(kind, given) in self._acknowledged else given
            for given in results
        ]
        counts = Counter(tenant_of(given.playbook) for given in fresh if given)
        refusals = {tenant: self._limited(tenant, count) for tenant, count in counts.items()}
        return [
            (new and refusals[tenant_of(new.playbook)]) or given
            for given, new in zip(results, fresh, strict=True)
        ]

    def _limited(self, tenant: str, count: int) -> Refusal | None:
        """Return the refusal of a tenant that reached a limit, None if the messages are admitted."""
        tenants, clock = self._context.tenants, self._context.clock
        now_ms, now_s = clock.now_ms(), clock.monotonic()
        if pause := tenants.pause(tenant, now_ms):
            return busy(pause.reason, retry_after_s=(pause.until_ms - now_ms) / 1000)
        if wait_s := tenants.wait_s(tenant, now_s):
            rate = tenants.limits(tenant).reflections_per_second
            return busy(
                f"tenant {tenant} publishes more than {rate:g} reflections per second", retry_after_s=wait_s
            )
        tenants.admit(tenant, count, now_s)
        return None

    async def _write(
        self, kind: Kind, caller: Caller, messages: Sequence[Published], context: TraceContext | None
    ) -> Mapping[Place, bool]:
        """Write the messages that were not acknowledged before; return by place whether each one was."""
        places = {self._place(kind, message): message for message in messages}
        known = {place for place in places if place in self._acknowledged}
        fresh = [message for place, message in places.items() if place not in known]
        if fresh:
            records = (self._record(caller, message) for message in fresh)
            offsets = await self._context.write(*(with_trace_context(record, context) for record in records))
            self._note(fresh, offsets)
        self._acknowledged.update({place: fingerprint(message) for place, message in places.items()})
        while len(self._acknowledged) > REMEMBERED:
            self._acknowledged.popitem(last=False)
        return {place: place in known for place in places}

    def _record(self, caller: Caller, message: Published) -> Outgoing:
        """Return a message's record, which authenticates the caller's key."""
        return self._provenance.vouched(outgoing(message), message.source if caller.has_key else None)

    def _note(self, messages: Sequence[Published], offsets: Sequence[int]) -> None:
        """Add messages to the live view before it reads them, so that the next request sees them."""
        now_ms, traced = self._context.clock.now_ms(), self._context.traced
        for message, offset in zip(messages, offsets, strict=True):
            if isinstance(message, Reflection):
                self._context.live.acknowledged(message.playbook, offset, now_ms)
            elif isinstance(message, Trace):
                traced[message.playbook] += 1
                if len(traced) > MAX_TRACED:
                    del traced[next(iter(traced))]

    def _item(
        self, kind: Kind, index: int, message: Published | Refusal, repeated: Mapping[Place, bool]
    ) -> Item:
        if isinstance(message, Refusal):
            return Item(index=index, status="refused", problem=message.problem)
        status = "repeated" if repeated[self._place(kind, message)] else "accepted"
        return Item(index=index, id=message.run_ids[0], status=status)

    def _place(self, kind: Kind, message: Published) -> Place:
        # Ids are scoped by source: another key may use the same id.
        owner = owner_of(message.source) if self._context.keys else ""
        own = identity_of(message.run_ids[0], owner)
        if not kind.prefix:
            own = f"{own} {fingerprint(message)}"
        return kind.topic.name, message.playbook, own


def _characters(value: Any) -> int:
    """Return the total length of the texts in a JSON value, a lower bound of its size in bytes."""
    match value:
        case str():
            return len(value)
        case list():
            return sum(map(_characters, value))
        case dict():
            return sum(len(name) + _characters(part) for name, part in value.items())
    return 0


def _is_json_lines(body: bytes) -> bool:
    """Return whether a body that is not JSON begins with a line that is an object."""
    try:
        return isinstance(from_json(body.lstrip().partition(b"\n")[0]), dict)
    except ValueError:
        return False


def _unfit(kind: Kind, given: Any) -> Refusal | None:
    """Return the refusal of an object that is invalid by checks which run before any pattern sees its texts."""
    if not isinstance(given, dict):
        return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "expected an object")
    message = kind.topic.message
    if has_more_values(given, MAX_VALUES):
        detail = f"a {message.type} has at most {MAX_VALUES} values; shorten its lists"
        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    if _characters(given) > message.max_bytes:
        detail = f"a {message.type} has at most {message.max_bytes} bytes; shorten it"
        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    return _for_a_branch(given.get("playbook"))


def _for_a_branch(playbook: Any) -> Refusal | None:
    if not isinstance(playbook, str) or playbook_of(playbook) == playbook or not is_name(playbook, line=True):
        return None
    of = playbook_of(playbook)
    return Refusal(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"{playbook} is a branch: publish for {of}, from whose reflections it learns, and name the branch that the"
        " agent read in shown.line",
    )


def _all_refused(refusals: Sequence[Refusal], *, single: bool) -> Refusal:
    if single:
        return refusals[0]
    errors = [
        Wrong(where=".".join(filter(None, (str(at), wrong.where))), detail=wrong.detail)
        for at, refusal in enumerate(refusals)
        for wrong in refusal.problem.errors or (Wrong(where="", detail=refusal.problem.detail),)
    ]
    statuses = {refusal.problem.status for refusal in refusals}
    status = HTTPStatus(statuses.pop()) if len(statuses) == 1 else HTTPStatus.UNPROCESSABLE_ENTITY
    waits = [wait for refusal in refusals if (wait := dict(refusal.headers or {}).get("Retry-After"))]
    headers = {"Retry-After": max(waits, key=int)} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
    return Refusal(status, "every item was refused", errors=tuple(errors), headers=headers)


def router(context: Context) -> APIRouter:
    """Return the endpoints."""
    routes = APIRouter(tags=["publish"])
    publishing = Publishing(context)
    for kind in KINDS:
        _add(routes, publishing, kind)
    return routes


def _add(routes: APIRouter, publishing: Publishing, kind: Kind) -> None:
    async def publish(
        request: Request, caller: Annotated[Caller, Depends(allowed("reflections:write"))]
    ) -> Response:
        check_json(request.headers)
        given = await request.body()
        async with publishing.room_for(given):
            status, receipt = await publishing.take(kind, caller, given)
        return Response(receipt.model_dump_json(), status, media_type=JSON)

    schema = {"$ref": f"#/components/schemas/New{kind.topic.message.__name__}"}
    batch = {"type": "array", "items": schema, "minItems": 1, "maxItems": publishing.most}
    body = {"required": True, "content": {JSON: {"schema": {"anyOf": [schema, batch]}}}}
    routes.add_api_route(
        kind.where,
        publish,
        methods=["POST"],
        status_code=HTTPStatus.ACCEPTED,
        operation_id=f"publish_{kind.topic.name}",
        summary=f"Publish {kind.topic.name}, one or many.",
        description=(
            "Answers when Kafka has acknowledged. A repeat under the same id of the same playbook counts once; other"
            " content under it is refused (409) while it is remembered. Without an id the same content has the same"
            " id. Secrets in texts are replaced by `***`. If some items of a batch are refused, the others are"
            " published, and the status is 207. A reflection's `usage` is ignored, and its `bullet_tags` count only"
            " for entries of the version that its `shown` names. A run may have several outcomes: the first value"
            " holds, and no run counts twice."
        ),
        response_model=Receipt,
        responses={
            202: {"description": "All items are acknowledged."},
            207: {"description": "Some items are acknowledged, some refused.", "model": Receipt},
            **problems(409, 415, *BODY),
        },
        openapi_extra={"requestBody": body},
    )
