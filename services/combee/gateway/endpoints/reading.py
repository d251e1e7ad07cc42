"""``GET /v1/playbooks…``: lists, versions, differences; answered from memory wherever possible."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response

from combee.core.commands import RefusedError
from combee.core.evaluation.outcomes.report import OutcomesReport, outcomes_report
from combee.core.formats.files import Format, write_playbook
from combee.core.gate.gate import labels_by_playbook
from combee.core.playbook.comparison import Comparison, compare
from combee.core.playbook.versions import empty
from combee.gateway import playbooks
from combee.gateway.access.access import allowed, check_touch
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.names import Name
from combee.gateway.problems import Refusal, not_found, problems
from combee.gateway.store import commands_of
from combee.gateway.values import LabelName, Page, Versions, as_row, listed
from combee.log.commands.playbook import Candidate
from combee_schemas.base import LineName
from combee_schemas.digests import digest
from combee_schemas.outcome import MAX_CALLER
from combee_schemas.playbook import Playbook

JSON, TEXT, MARKDOWN = "application/json", "text/plain", "text/markdown"
MEDIA_TYPES: Mapping[str, str] = {"ace": TEXT, "md": MARKDOWN, "skill": MARKDOWN}
"""Media types of formats; all others are JSON."""
WITH_COUNTERS: frozenset[Format] = frozenset({"ace", "md"})
MAX_PAGE = 1000
DEFAULT_PAGE = 100

Reader = Annotated[Caller, Depends(allowed("playbooks:read"))]
Version = Annotated[int, Query(ge=0, le=2**31, description="0 is the empty version that all start from")]
State = Annotated[
    Literal["active", "all"],
    Query(description="only entries shown to agents, or also proposed ones"),
]
Counters = Annotated[
    bool | None,
    Query(
        description="for `ace` and `md`: with the entries' counters, or without, so that a prompt's lines change only"
        " where entries do; by default the playbook's own setting"
    ),
]
IfNoneMatch = Annotated[str | None, Header(description="ETags that the client has")]


CALLER = (
    "name of the reader; only named readers may be shown a candidate that is tried on a share of the callers"
)
CANARY = "Combee-Canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Format options of a playbook."""

    form: Format
    state: State = "active"
    counters: bool | None = None
    """Whether to write counters, None for the playbook's own setting."""

    def tag(self, playbook: Playbook) -> str:
        """Return the ETag of one version, which identifies its text without rendering it."""
        parts: list[str | int] = [
            playbook.name,
            playbook.version,
            playbook.created_at_ms,
            self.form,
            self.state,
        ]
        parts += [] if self.counters is None else [str(self.counters)]
        return f'"{playbook.version}-{digest("etag", *parts).hex()}"'

    def text(self, playbook: Playbook) -> str:
        """Return a playbook as text.

        Raises
        ------
        Refusal
            If the format cannot express it.
        """
        if self.counters is not None and self.form in WITH_COUNTERS:
            playbook = playbook.model_copy(update={"counters": self.counters})
        try:
            return write_playbook(playbook, self.form, everything=self.state == "all")
        except ValueError as error:
            raise Refusal(
                HTTPStatus.CONFLICT, f"{playbook.name} cannot be written as {self.form}: {error}"
            ) from error


class Reading:
    """The endpoints' work."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list_playbooks(
        self,
        caller: Reader,
        prefix: Annotated[str, Query(max_length=200, description="start of the names")] = "",
        after: Annotated[LineName | None, Query(description="only names after this one")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    ) -> Page:
        """List the playbooks that this key may see, in the order of their names."""
        playbooks.check_current(self._context)
        matching = (
            playbook
            for name, playbook in playbooks.newest_by_name(self._context).items()
            if name.startswith(prefix) and name > (after or "") and caller.may_touch(name)
        )
        first = list(islice(matching, limit + 1))
        labels = labels_by_playbook(self._context.labels.all().values())
        rows = tuple(listed(playbook, labels.get(playbook.name, {})) for playbook in first[:limit])
        return Page(playbooks=rows, next=rows[-1].name if len(first) > limit else None)

    async def playbook(
        self,
        caller: Reader,
        name: Name,
        *,
        version: Annotated[int | None, Query(ge=1, le=2**31)] = None,
        label: Annotated[LabelName | None, Query(description="such as `production`, or `latest`")] = None,
        form: Annotated[Format, Query(alias="format")] = "json",
        state: State = "active",
        counters: Counters = None,
        whose: Annotated[str, Query(alias="caller", max_length=MAX_CALLER, description=CALLER)] = "",
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Return one version of a playbook, by default the one that agents read; 304 if the client has its ETag.

        Agents read the newest version, or `production` if the playbook has a gate.
        """
        if version is not None and label is not None:
            raise Refusal(HTTPStatus.BAD_REQUEST, "give a version or a label, not both")
        check_touch(caller, name)
        place, tried = ("", None) if version or label else playbooks.tried_on(self._context, name, whose)
        of_canary = {CANARY: place} if place else {}
        try:
            playbook = await playbooks.find_version(
                self._context, caller, name, version or tried or None, label
            )
        except Refusal as refusal:  # the control group may have no version to read and still takes part
            raise refusal.with_headers(of_canary) from None
        shape = Shape(form=form, state=state, counters=counters)
        etag = shape.tag(playbook)
        headers = {
            "ETag": etag,
            "Cache-Control": "no-cache",
            "Combee-Version": str(playbook.version),
        } | of_canary
        if matches(if_none_match, etag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(shape.text(playbook), headers=headers, media_type=MEDIA_TYPES.get(form, JSON))

    async def versions(
        self,
        caller: Reader,
        name: Name,
        before: Annotated[
            int | None, Query(ge=1, le=2**31, description="only versions before this one")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
    ) -> Versions:
        """List the versions of a playbook, newest first."""
        await playbooks.find_version(self._context, caller, name)
        places = sorted(await self._context.history.places(name), reverse=True)
        first = [place for place in places if before is None or place < before][: limit + 1]
        rows = []
        for number in first[:limit]:  # one version at a time in memory: a thousand may be gigabytes
            playbook = await self._context.history.exactly(name, number)
            if playbook is not None:
                rows.append(as_row(playbook))
        return Versions(
            name=name, versions=tuple(rows), next=first[limit - 1] if len(first) > limit else None
        )

    async def difference(
        self,
        caller: Reader,
        name: Name,
        from_: Annotated[Version, Query(alias="from")],
        to: Version,
    ) -> Comparison:
        """Return the differences from version ``from`` to version ``to``, entry by entry."""
        before, after = [
            await playbooks.find_version(self._context, caller, name, number) if number else empty(name)
            for number in (from_, to)
        ]
        if not from_ and not to:
            await playbooks.find_version(self._context, caller, name)
        return compare(before, after)

    async def candidate(self, caller: Reader, name: Name) -> Candidate:
        """Return the candidate at a playbook's gate, with its verdicts so far and its differences from production."""
        await playbooks.find_version(self._context, caller, name)
        try:
            return await commands_of(self._context, f"key:{caller.name}").candidate(name)
        except RefusedError as error:
            raise not_found(str(error)) from error

    async def outcomes(self, caller: Reader, name: Name) -> OutcomesReport:
        """Return the outcomes of runs by version and by entry, with 95 % intervals."""
        newest = await playbooks.find_version(self._context, caller, name)
        statistics = (await self._context.outcomes.by_line()).get(name)
        return outcomes_report(name, statistics, newest.version, await self._context.outcomes.canary(name))


def matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether a client has this version (RFC 9110: weak comparison)."""
    given = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    return etag in given or "*" in given


def router(context: Context) -> APIRouter:
    """Return the endpoints; paths below a name are matched before the name itself."""
    reading, routes = Reading(context), APIRouter(tags=["playbooks"])
    below = "/v1/playbooks"
    routes.add_api_route(below, reading.list_playbooks, response_model=Page, responses=problems())
    add = routes.add_api_route
    add(
        f"{below}/{{name:playbook}}/versions",
        reading.versions,
        response_model=Versions,
        responses=problems(404),
    )
    add(
        f"{below}/{{name:playbook}}/diff",
        reading.difference,
        response_model=Comparison,
        responses=problems(404),
    )
    add(
        f"{below}/{{name:playbook}}/outcomes",
        reading.outcomes,
        response_model=OutcomesReport,
        responses=problems(404),
    )
    add(
        f"{below}/{{name:playbook}}/candidate",
        reading.candidate,
        response_model=Candidate,
        responses=problems(404),
    )
    text = {"schema": {"type": "string"}}
    shapes = {"anyOf": [{"$ref": "#/components/schemas/Playbook"}, {"type": "object"}]}
    content = {JSON: {"schema": shapes}, TEXT: text, MARKDOWN: text}
    headers = {
        "ETag": {"schema": {"type": "string"}},
        "Combee-Version": {"schema": {"type": "integer"}, "description": "the version in the body"},
        CANARY: {"schema": {"type": "string"}, "description": "value for `shown.canary` of the outcome"},
    }
    add(
        f"{below}/{{name:whole}}",
        reading.playbook,
        response_class=Response,
        responses={
            200: {"description": "The playbook.", "content": content, "headers": headers},
            304: {"description": "The client has this version.", "headers": headers},
            **problems(400, 404, 409),
        },
    )
    return routes
