"""Commands for publish: ``POST /v1/playbooks/{name}/promote`` and its like, idempotent by their ids."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from combee.adapters.ports import PoisonError
from combee.core.commands import Reason, RefusedError
from combee.core.formats.files import read_playbook
from combee.core.log.replaying.selection import time_ms
from combee.gateway import playbooks
from combee.gateway.access.access import (
    CALLER,
    allowed,
    check_has_key,
    check_json,
    check_origin,
    check_touch,
)
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.endpoints.bodies import (
    Adopt,
    CommandBody,
    Edit,
    Import,
    Judgement,
    Keep,
    NewBranch,
    Pause,
    Promote,
    Rejection,
    Revoke,
    Rollback,
)
from combee.gateway.names import Name
from combee.gateway.problems import BODY, Refusal, problems, unavailable
from combee.gateway.store import commands_of
from combee.gateway.values import Sent, has_more_values
from combee.log.commands.playbook import Commands, Effect, PreparedCommand
from combee.process.settings.gateway import listed
from combee_schemas.base import playbook_of

STATUSES: Mapping[Reason, HTTPStatus] = {
    "unknown": HTTPStatus.NOT_FOUND,
    "invalid": HTTPStatus.BAD_REQUEST,
    "conflict": HTTPStatus.CONFLICT,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}

MAX_VALUES = 5_000
"""Maximum number of values in a body: twice what the longest command needs; a wrong one costs kilobytes to name."""


@dataclass(frozen=True, slots=True)
class Call:
    """Parts of every command's request other than its body."""

    caller: Annotated[Caller, Depends(allowed("playbooks:admin"))]
    name: Name
    response: Response
    wait_s: Annotated[
        float, Query(ge=0, le=60, description="maximum wait for the effect before the answer (s)")
    ] = 0.0


Given = Annotated[Call, Depends()]
Decide = Callable[[Commands], Awaitable[PreparedCommand]]


class Endpoints:
    """The commands over HTTP."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def promote(self, call: Given, body: Promote) -> Sent:
        """Point a label at a version, the newest by default; agents that read the label follow."""
        return await self._carried_out(
            call, body, lambda to: to.promote(call.name, body.label, body.version, command_id=body.command_id)
        )

    async def approve(self, call: Given, body: Judgement) -> Sent:
        """Approve a gated playbook's candidate: agents read it once all its judges accept it."""
        return await self._judged(call, body, accepts=True)

    async def reject(self, call: Given, body: Rejection) -> Sent:
        """Reject a gated playbook's candidate: agents never read it, and its batches are revoked.

        With `entry_ids` or `sources` only these are rejected, and the rest becomes the next candidate.
        """
        return await self._judged(call, body, accepts=False)

    async def _judged(self, call: Call, body: Judgement, *, accepts: bool) -> Sent:
        rejected = body if isinstance(body, Rejection) else Rejection(reason=body.reason)
        return await self._carried_out(
            call,
            body,
            lambda to: to.judge(
                call.name,
                body.version,
                accepts=accepts,
                reason=body.reason,
                production=body.production,
                entry_ids=rejected.entry_ids,
                sources=rejected.sources,
                command_id=body.command_id,
            ),
        )

    async def rollback(self, call: Given, body: Rollback) -> Sent:
        """Make a new version with an old version's content; a deleted playbook is restored."""
        return await self._carried_out(
            call, body, lambda to: to.rollback(call.name, body.version, command_id=body.command_id)
        )

    async def edit(self, call: Given, body: Edit) -> Sent:
        """Change entries; refused if another change to the same entry was made meanwhile."""
        return await self._carried_out(
            call, body, lambda to: to.edit(call.name, body.text, body.version, command_id=body.command_id)
        )

    async def keep(self, call: Given, body: Keep) -> Sent:
        """Confirm entries by hand: proposed ones become active, and no single source can change them."""
        return await self._carried_out(
            call, body, lambda to: to.keep(call.name, body.entry_ids, command_id=body.command_id)
        )

    async def import_(self, call: Given, body: Import) -> Sent:
        """Replace a playbook's content, or start a playbook; nothing happens if the content is the same."""

        async def decide(commands: Commands) -> PreparedCommand:
            try:
                given = read_playbook(body.text, body.format, name=call.name)
            except ValueError as error:
                raise RefusedError("invalid", f"the text, read as {body.format}: {error}") from error
            return await commands.import_(call.name, given, body.format, command_id=body.command_id)

        return await self._carried_out(call, body, decide)

    async def revoke(self, call: Given, body: Revoke) -> Sent:
        """Revoke reflections: entries that rest on them alone are removed, others return to their earlier text."""
        return await self._carried_out(
            call, body, lambda to: to.revoke(call.name, body.chosen, command_id=body.command_id)
        )

    async def pause(self, call: Given, body: Pause) -> Sent:
        """Pause learning: agents read on, what they send waits, and no model is called."""

        async def decide(commands: Commands) -> PreparedCommand:
            try:
                until_ms = None if body.until is None else time_ms(body.until)
            except ValueError as error:
                raise RefusedError("invalid", str(error)) from error
            async with asyncio.timeout(self._context.limits.ack_timeout_s):
                return await commands.pause(call.name, until_ms, command_id=body.command_id)

        return await self._carried_out(call, body, decide)

    async def resume(self, call: Given, body: CommandBody) -> Sent:
        """End a pause: everything that waited is learned from."""
        return await self._carried_out(
            call, body, lambda to: to.resume(call.name, command_id=body.command_id)
        )

    async def delete(self, call: Given, body: CommandBody) -> Sent:
        """Delete a playbook and its labels for all subscribers; its history stays, and rollback restores it."""
        return await self._carried_out(
            call, body, lambda to: to.delete(call.name, command_id=body.command_id)
        )

    async def branch(self, call: Given, body: NewBranch) -> Sent:
        """Fork `NAME@BRANCH`, which learns from the playbook's further reflections with its own settings."""
        return await self._carried_out(
            call,
            body,
            lambda to: to.branch(call.name, body.branch, body.settings, command_id=body.command_id),
        )

    async def adopt(self, call: Given, body: Adopt) -> Sent:
        """Publish a branch's (`NAME@BRANCH`) entries as the playbook's next version; the branch keeps learning."""
        playbook = playbook_of(call.name)
        return await self._carried_out(
            call,
            body,
            lambda to: to.adopt(playbook, call.name, body.version, command_id=body.command_id),
        )

    async def consolidate(self, call: Given, body: CommandBody) -> Sent:
        """Let the model merge similar entries and judge mostly harmful ones."""
        return await self._carried_out(
            call, body, lambda to: to.consolidate(call.name, command_id=body.command_id)
        )

    async def flush(self, call: Given, body: CommandBody) -> Sent:
        """Close the window now: the waiting reflections become a batch and then a version."""

        async def decide(commands: Commands) -> PreparedCommand:
            live, within_s = self._context.live, self._context.limits.ack_timeout_s
            try:
                await live.wait_current(within_s)
            except TimeoutError as error:
                raise unavailable("the gateway is still reading the waiting reflections") from error
            newest = live.picture.windows.newest(playbook_of(call.name))
            async with asyncio.timeout(within_s):
                return await commands.flush(call.name, newest, command_id=body.command_id)

        return await self._carried_out(call, body, decide)

    async def _carried_out(self, call: Call, body: CommandBody, decide: Decide) -> Sent:
        """Decide, send, and, on request, wait for the effect."""
        check_touch(call.caller, call.name)
        commands = commands_of(self._context, f"key:{call.caller.name}")
        made: Effect | None = None
        try:
            prepared = await decide(commands)
            if prepared.command is not None:
                sent = await commands.send(prepared.command)
                made = await commands.outcome(sent, call.wait_s) if call.wait_s else None
        except RefusedError as error:
            raise await self._refusal(call.name, error) from error
        except PoisonError as error:
            raise unavailable(str(error)) from error
        changed, labels = prepared.command is not None, dict(prepared.labels)
        command_id = prepared.command.command_id if prepared.command else body.command_id or ""
        if changed and made is None:
            return Sent(command_id=command_id, labels=labels)
        call.response.status_code = HTTPStatus.OK
        version = made.version if made else prepared.version
        return Sent(command_id=command_id, done=True, version=version, changed=changed, labels=labels)

    async def _refusal(self, name: str, error: RefusedError) -> Refusal:
        if error.reason == "absent":
            return await playbooks.absent(self._context, name)
        return Refusal(STATUSES[error.reason], str(error))


def from_its_own_page(context: Context) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that refuses pages of other origins, unless CORS allows the origin, and too many values."""
    origins = listed(context.settings.gateway.gateway_cors_origins)

    async def check(request: Request) -> None:
        check_json(request.headers)
        check_origin(request.headers, origins)
        if await request.body() and has_more_values(await request.json(), MAX_VALUES):
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a command has at most {MAX_VALUES} values")

    return check


def with_a_key_if_judged(context: Context) -> Callable[[Request], None]:
    """Return a dependency that requires a key while a judge is on."""

    def check(request: Request) -> None:
        playbooks.check_current(context)
        check_has_key(request.scope[CALLER], is_judged=context.is_judged())

    return check


def router(context: Context) -> APIRouter:
    """Return the endpoints."""
    guards = [Depends(from_its_own_page(context)), Depends(with_a_key_if_judged(context))]
    commands, routes = Endpoints(context), APIRouter(tags=["commands"], dependencies=guards)
    for verb, work in (
        ("promote", commands.promote),
        ("approve", commands.approve),
        ("reject", commands.reject),
        ("rollback", commands.rollback),
        ("edit", commands.edit),
        ("keep", commands.keep),
        ("import", commands.import_),
        ("revoke", commands.revoke),
        ("pause", commands.pause),
        ("resume", commands.resume),
        ("delete", commands.delete),
        ("branch", commands.branch),
        ("adopt", commands.adopt),
        ("consolidate", commands.consolidate),
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
                200: {
                    "description": "The command has its effect, or there was nothing to do.",
                    "model": Sent,
                },
                202: {"description": "Kafka has acknowledged it; the services will process it."},
                **problems(400, 404, 409, 415, *BODY),
            },
        )
    return routes
