"""Commands for publish: ``POST /v1/playbooks/{name}/promote`` and its like, idempotent by their ids."""

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from combee.core.formats.editing import edit_operations, edited_version
from combee.core.formats.files import carried_over, held_by, read_playbook, says_the_same, write_playbook
from combee.core.identity import content_id
from combee.core.playbook.apply import empty
from combee.gateway import playbooks
from combee.gateway.access.access import allowed, check_touch
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.endpoints.bodies import Asked, Edit, Import, Promote, Revoke, Rollback
from combee.gateway.names import Name
from combee.gateway.problems import BODY, Refusal, not_found, problems, unavailable
from combee.gateway.values import Sent
from combee.inspection import lineage
from combee.ports import PoisonError
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.command import Command, CommandKind
from combee_schemas.playbook import LATEST, Playbook

LOOK_S = 1.0
NO_BODY = Asked()

Admin = Annotated[Caller, Depends(allowed("playbooks:admin"))]
WaitS = Annotated[float, Query(ge=0, le=60, description="wait so long for the effect before answering (s)")]


class Commands:
    """The endpoints' work."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def promote(
        self, caller: Admin, name: Name, body: Promote, response: Response, wait_s: WaitS = 0.0
    ) -> Sent:
        """Let a label point at a version, the newest by default; agents that read it follow."""
        current = await playbooks.wanted(self._context, caller, name)
        if body.label == LATEST:
            raise Refusal(HTTPStatus.CONFLICT, f"{LATEST} moves by itself")
        version = body.version or current.version
        if version > current.version:
            raise not_found(f"{name} has no version {version}; the newest is {current.version}")
        known = playbooks.labels_of(self._context, name).get(body.label)
        if known and (known.version == version or body.command_id in known.commands):
            return _unchanged(response, body.command_id, known.version)
        # A label that went with its playbook may be set again: that is another command.
        moved = str(known.command_offset) if known else f"version {current.version}"
        command_id = body.command_id or content_id("promote", name, body.label, str(version), moved)
        command = self._command(caller, "promote", current, command_id, label=body.label, version=version)
        return await self._send(command, response, wait_s)

    async def rollback(
        self, caller: Admin, name: Name, body: Rollback, response: Response, wait_s: WaitS = 0.0
    ) -> Sent:
        """Make a new version that says what an old one says; a deleted playbook comes back."""
        current = self._any(caller, name)
        target = await self._context.history.exactly(name, body.version)
        if target is None:
            raise not_found(f"{name} has no version {body.version}; the newest is {current.version}")
        deleted = current.origin == playbooks.DELETED
        if body.command_id in current.commands or (not deleted and says_the_same(current, target, "json")):
            return _unchanged(response, body.command_id, current.version)
        command_id = body.command_id or _own("rollback", current, str(body.version))
        command = self._command(caller, "rollback", current, command_id, version=body.version)
        return await self._send(command, response, wait_s)

    async def edit(
        self, caller: Admin, name: Name, body: Edit, response: Response, wait_s: WaitS = 0.0
    ) -> Sent:
        """Change entries; refused if an entry that changed here has changed meanwhile."""
        current = await playbooks.wanted(self._context, caller, name)
        version = body.version or edited_version(body.text) or current.version
        base = await playbooks.wanted(self._context, caller, name, version)
        try:
            operations = edit_operations(base, body.text)
        except ValueError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"the edited text: {error}") from error
        if not operations or body.command_id in current.commands:
            return _unchanged(response, body.command_id, current.version)
        command_id = body.command_id or content_id("edit", name, str(base.version), body.text)
        command = self._command(
            caller, "edit", current, command_id, operations=operations, base_version=base.version
        )
        return await self._send(command, response, wait_s)

    async def import_(
        self, caller: Admin, name: Name, body: Import, response: Response, wait_s: WaitS = 0.0
    ) -> Sent:
        """Replace a playbook's content, or start one; nothing happens if it says the same already."""
        check_touch(caller, name)
        playbooks.check_current(self._context)
        current = playbooks.newest(self._context, name) or empty(name)
        try:
            given = read_playbook(body.text, body.format, name=name).model_copy(update={"name": name})
        except ValueError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"the text, read as {body.format}: {error}") from error
        if says_the_same(current, given, body.format) or body.command_id in current.commands:
            return _unchanged(response, body.command_id, current.version)
        base = self._context.playbooks.latest(name)
        command = self._command(
            caller,
            "import",
            current,
            body.command_id or _own("import", base, write_playbook(given, "json")),
            entries=carried_over(current, given, body.format),
            sections=given.sections,
            counters=given.counters,
            holds=held_by(current, given, body.format),
        )
        return await self._send(command, response, wait_s)

    async def revoke(
        self, caller: Admin, name: Name, body: Revoke, response: Response, wait_s: WaitS = 0.0
    ) -> Sent:
        """Take reflections back: entries that rest on them alone go, and they never count again."""
        current = await playbooks.wanted(self._context, caller, name)
        gone = {*current.revoked, *body.reflection_ids}
        labels = {label: one.version for label, one in playbooks.labels_of(self._context, name).items()}
        exactly = partial(self._context.history.exactly, name)
        try:
            unknown = await lineage.unknown(self._context.log, current, body.reflection_ids)
            serving = await lineage.labels_serving(self._context.log, labels, exactly, gone)
        except PoisonError as error:
            raise unavailable(str(error)) from error
        if unknown:
            raise not_found(f"{name} has no reflection {', '.join(unknown)}")
        if len(gone) == len(current.revoked) or body.command_id in current.commands:
            sent = _unchanged(response, body.command_id, current.version)
        else:
            command_id = body.command_id or _own("revoke", current, *body.reflection_ids)
            command = self._command(
                caller, "revoke", current, command_id, reflection_ids=tuple(body.reflection_ids)
            )
            sent = await self._send(command, response, wait_s)
        return sent.model_copy(update={"labels": serving})

    async def delete(
        self, caller: Admin, name: Name, body: Asked, response: Response, wait_s: WaitS = 0.0
    ) -> Sent:
        """Delete a playbook and its labels for all subscribers; its history stays, and rollback brings it back."""
        current = self._any(caller, name)
        if current.origin == playbooks.DELETED and body.command_id in current.commands:
            return _unchanged(response, body.command_id, current.version)
        if current.origin == playbooks.DELETED:
            raise not_found(f"there is no playbook {name}")
        command = self._command(caller, "delete", current, body.command_id or _own("delete", current))
        return await self._send(command, response, wait_s)

    async def flush(
        self, caller: Admin, name: Name, response: Response, body: Asked = NO_BODY, wait_s: WaitS = 0.0
    ) -> Sent:
        """Close the window now: what waits goes into a batch without others, and becomes a version."""
        check_touch(caller, name)
        playbooks.check_current(self._context)
        if not self._context.live.is_current:
            raise unavailable("the gateway is still reading what waits")
        current, newest = (
            self._context.playbooks.latest(name),
            self._context.live.picture.windows.newest(name),
        )
        through = await self._flushed(name, body.command_id) if body.command_id else None
        if through is None and current.through_offset >= newest:
            if not current.version:
                raise playbooks.absent(self._context, name)
            return _unchanged(response, body.command_id, current.version)
        through = newest if through is None else through
        command_id = body.command_id or content_id("flush", name, str(through))
        command = self._command(caller, "flush", current, command_id, through_offset=through)
        return await self._send(command, response, wait_s)

    # ---- how

    async def _flushed(self, name: str, command_id: str) -> int | None:
        """Return how far a flush of this id went: the same again has no second effect. No version remembers it."""
        async with asyncio.timeout(self._context.settings.gateway.gateway_ack_timeout_s):
            sent = [one async for one in lineage.messages(self._context.log, topics.COMMANDS, name)]
        same = (one for one in sent if one.kind == "flush" and one.command_id == command_id)
        return next((one.through_offset for one in same), None)

    def _any(self, caller: Caller, name: str) -> Playbook:
        """Return the newest version, of a deleted playbook what remains."""
        check_touch(caller, name)
        playbooks.check_current(self._context)
        current = self._context.playbooks.latest(name)
        if not current.version:
            raise playbooks.absent(self._context, name)
        return current

    def _command(
        self, caller: Caller, kind: CommandKind, current: Playbook, command_id: str, **fields: Any
    ) -> Command:
        return Command(
            command_id=command_id,
            playbook=current.name,
            kind=kind,
            issued_at_ms=self._context.clock.now_ms(),
            issued_by=f"key:{caller.name}",
            **fields,
        )

    async def _send(self, command: Command, response: Response, wait_s: float) -> Sent:
        """Write a command; wait for what becomes of it, if that is wanted."""
        try:
            outgoing = topics.COMMANDS.record(command)
        except CodecError as error:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
        (offset,) = await self._context.write(outgoing)
        partition = await self._context.log.partition_for(
            topics.COMMANDS.name, topics.COMMANDS.key_of(command)
        )
        origin = f"{topics.COMMANDS.name}[{partition}]@{offset}"
        deadline = self._context.clock.monotonic() + wait_s
        while True:
            seen = self._context.changed.seen
            self._check_refused(origin)
            if (version := self._done(command)) is not None:
                response.status_code = HTTPStatus.OK
                return Sent(command_id=command.command_id, done=True, version=version)
            left_s = deadline - self._context.clock.monotonic()
            if left_s <= 0 or self._context.stopping.is_set():
                return Sent(command_id=command.command_id)
            await self._context.changed.wait(seen, min(left_s, LOOK_S))

    def _check_refused(self, origin: str) -> None:
        for letter in self._context.live.picture.snapshot(0).dead_letters_recent:
            if letter.origin == origin:
                raise Refusal(HTTPStatus.CONFLICT, f"publish refused it: {letter.reason}")

    def _done(self, command: Command) -> int | None:
        """Return the version that a command brought about, once it did."""
        if command.kind == "promote":
            label = playbooks.labels_of(self._context, command.playbook).get(command.label)
            return label.version if label and command.command_id in label.commands else None
        latest = self._context.playbooks.latest(command.playbook)
        if command.kind == "flush":
            return latest.version if latest.through_offset >= command.through_offset else None
        return latest.version if command.command_id in latest.commands else None


def _own(kind: CommandKind, current: Playbook, *parts: str) -> str:
    """Return an id that names what is asked for and of which version: sent twice, it has one effect."""
    return content_id(kind, current.name, *parts, str(current.version))


def _unchanged(response: Response, command_id: str | None, version: int) -> Sent:
    response.status_code = HTTPStatus.OK
    return Sent(command_id=command_id or "", done=True, version=version, changed=False)


def router(context: Context) -> APIRouter:
    """Return the endpoints."""
    commands, routes = Commands(context), APIRouter(tags=["commands"])
    for verb, work in (
        ("promote", commands.promote),
        ("rollback", commands.rollback),
        ("edit", commands.edit),
        ("import", commands.import_),
        ("revoke", commands.revoke),
        ("delete", commands.delete),
        ("flush", commands.flush),
    ):
        routes.add_api_route(
            f"/v1/playbooks/{{name:playbook}}/{verb}",
            work,
            methods=["POST"],
            operation_id=verb,
            status_code=HTTPStatus.ACCEPTED,
            response_model=Sent,
            responses={
                200: {"description": "Its effect is there, or nothing was to be done.", "model": Sent},
                202: {"description": "Kafka has acknowledged it; publish gets to it."},
                **problems(400, 404, 409, *BODY),
            },
        )
    return routes
