"""Commands to playbooks: decided on their present state, sent to publish, and awaited.

``Commands`` is what the command line, the gateway and the dashboard call. A verb returns a ``PreparedCommand``.
If it has a command, ``send`` writes it and ``outcome`` waits for its effect::

    commands = Commands(log, store, clock, issued_by="key:operators")
    prepared = await commands.rollback("support/refunds", 12)
    if prepared.command:
        sent = await commands.send(prepared.command)
        made = await commands.outcome(sent, timeout_s=30)

What cannot be is refused with ``RefusedError``, which says why, the same everywhere.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import Field

from combee.adapters.ports import Clock, Log, Outgoing
from combee.core import commands as decide
from combee.core.commands import RefusedError
from combee.core.formats.files import Format
from combee.core.gate.gate import gate_of
from combee.core.log.live.values import LiveDeadLetter
from combee.core.names.sources import NOBODY, KnownSources
from combee.core.playbook.comparison import Comparison, compare
from combee.core.playbook.draft import NO_BUDGET
from combee.core.playbook.executing import retained_from, with_revocation
from combee.core.playbook.lineage.rejecting import taught_by, unknown_entries, unknown_sources
from combee.core.playbook.pausing import latest_end
from combee.core.playbook.versions import empty
from combee.log.commands.revocation import Meant, Outlook, calls_for, copies_of, meant
from combee.log.evidence import adoption_of, recomputed, updates_between, with_revoked
from combee.log.history import History, messages, partition_of
from combee.log.inspection.lag import waiting
from combee_schemas import topics
from combee_schemas.base import Value, playbook_of
from combee_schemas.codec import CodecError
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.gate import Judge, Verdict
from combee_schemas.playbook import PRODUCTION, Label, Playbook

Effect = Playbook | Label


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """What a verb sends, and what it was decided on."""

    command: Command | None
    """What is to be sent; None: nothing is to be done."""
    current: Playbook
    """The newest version when it was decided; of a deleted playbook what remains, version 0 if there was none."""
    version: int
    """What holds if nothing is to be done: the newest version, or the one that the label points at."""
    label: Label | None = None
    """Of ``promote``: the label as it was."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """Of ``revoke``: labels whose versions rest on what is revoked, which goes on being served there."""
    outlook: Outlook | None = None
    """Of ``revoke``: all that it does."""


class Candidate(Value):
    """A version that waits at its playbook's gate."""

    name: str
    version: int
    production: int
    """The version that agents read; 0: none."""
    newest: int
    since_ms: int
    judges: tuple[Judge, ...]
    waits_for: tuple[Judge, ...]
    """The judges that have not spoken yet."""
    verdicts: tuple[Verdict, ...]
    difference: Comparison
    sources: dict[str, int] = Field(default_factory=dict)
    """Who taught the batches since production, and with how many reflections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A command in the log; a large revocation stands there in several parts."""

    parts: Sequence[Command]
    partition: int
    offsets: Sequence[int]

    @property
    def command(self) -> Command:
        """The command, or its last part, which has its id."""
        return self.parts[-1]


class Store(Protocol):
    """Where the present state of playbooks is read, and where what becomes of a command is seen.

    ``LogStore`` reads the log itself. A process that follows the topics anyway answers from its views.
    """

    async def newest(self, name: str) -> Playbook:
        """Return the newest version, of a deleted playbook what remains; version 0 if there never was one."""

    async def version(self, name: str, number: int) -> Playbook | None:
        """Return one version; None if there is none."""

    async def branches(self, name: str) -> Sequence[Playbook]:
        """Return the newest versions of a playbook's branches, of those that are there."""

    async def labels(self, name: str) -> Mapping[str, Label]:
        """Return a playbook's labels by name."""

    async def write(self, *outgoing: Outgoing) -> Sequence[int]:
        """Write records and return their offsets; whatever becomes of them can be seen from now on."""

    async def effect(self, command: Command) -> Effect | None:
        """Wait until a command has taken effect; None if that will not be known here."""

    async def refusal(self, sent: Sent) -> DeadLetter | LiveDeadLetter:
        """Wait until a service has refused a command, or a part of it, and return the letter that says why."""


class Commands:
    """The verbs, on behalf of somebody."""

    def __init__(
        self,
        log: Log,
        store: Store,
        clock: Clock,
        *,
        issued_by: str,
        embeds: bool = False,
        known: Callable[[], KnownSources] = lambda: NOBODY,
    ) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._issued_by = issued_by
        self._known = known
        """What proves sources, as far as this process knows."""
        self._embeds = embeds
        """Whether shuffle has an embedding model, as far as this process knows."""

    # ---- decided

    async def promote(
        self, name: str, label: str, version: int | None = None, *, command_id: str | None = None
    ) -> PreparedCommand:
        """Let a label point at a version, the newest by default."""
        current = await self._store.newest(name)
        decide.check_live(current)
        if version is not None and await self._version(current, version) is None:
            raise RefusedError("unknown", decide.no_version(current, version))
        known = (await self._store.labels(name)).get(label)
        command = decide.promote(current, known, label, version or current.version, command_id)
        pointed_at = known.version if known else current.version
        return PreparedCommand(command=command, current=current, version=pointed_at, label=known)

    async def judge(
        self,
        name: str,
        version: int | None = None,
        *,
        accepts: bool,
        reason: str = "",
        production: int | None = None,
        entry_ids: Sequence[str] = (),
        sources: Sequence[str] = (),
        command_id: str | None = None,
    ) -> PreparedCommand:
        """Approve or reject the candidate of a gated playbook.

        ``version``: the version that a person looked at; ``production``: the version that it was compared with.
        ``entry_ids`` or ``sources``: what alone is rejected; the rest goes on as the next candidate.
        """
        current, labels = await self._store.newest(name), await self._store.labels(name)
        command = decide.judge(
            current,
            gate_of(labels),
            version,
            command_id,
            accepts=accepts,
            reason=reason,
            production=production,
            entry_ids=entry_ids,
            sources=sources,
        )
        if command is not None and (entry_ids or sources):
            candidate = await self.candidate(name)
            complaint = unknown_entries(candidate.difference, entry_ids) or unknown_sources(
                name, candidate.version, candidate.sources, sources
            )
            if complaint:
                raise RefusedError("unknown", complaint)
        known = labels.get(PRODUCTION)
        pointed_at = known.version if known else current.version
        return PreparedCommand(command=command, current=current, version=pointed_at, label=known)

    async def candidate(self, name: str) -> Candidate:
        """Return what waits at a playbook's gate, with all that a person needs to decide.

        Raises
        ------
        RefusedError
            If there is no such playbook, it has no gate, or nothing waits there.
        """
        current = await self._store.newest(name)
        decide.check_live(current)
        gate = gate_of(await self._store.labels(name))
        if gate is None or gate.candidate is None:
            why = f"{name} has no candidate" if gate else f"{name} has no gate: COMBEE_GATE turns it on"
            raise RefusedError("unknown", why)
        production, candidate = [
            await self._version(current, number) or empty(name)
            for number in (gate.production.version, gate.candidate.version)
        ]
        updates = await updates_between(self._log, name, production.batch_sequence, candidate.batch_sequence)
        places = production.history_offset + 1, candidate.history_offset
        between = [version async for version in History(self._log).between(name, *places)]
        return Candidate.model_validate(
            {
                "name": name,
                "version": candidate.version,
                "production": production.version,
                "newest": current.version,
                "since_ms": gate.candidate.moved_at_ms,
                "judges": gate.judges,
                "waits_for": [judge for judge in gate.judges if gate.waits_for(judge)],
                "verdicts": gate.candidate.verdicts,
                "difference": compare(production, candidate, between),
                "sources": {source: len(ids) for source, ids in taught_by(updates).items()},
            }
        )

    async def rollback(self, name: str, version: int, *, command_id: str | None = None) -> PreparedCommand:
        """Make a new version that says what an old one says; a deleted playbook comes back."""
        current = await self._store.newest(name)
        target = await self._version(current, version)
        return _prepared(current, decide.rollback(current, version, target, command_id))

    async def adopt(
        self, name: str, line: str, version: int | None = None, *, command_id: str | None = None
    ) -> PreparedCommand:
        """Make a new version that says what a branch says: ``line`` (``NAME@BRANCH``), its newest version by default.

        Raises
        ------
        PoisonError
            If what the branch has not read cannot be looked up in time.
        RefusedError
            If there is no such line or version, it is no branch of the playbook, or has not read what that has.
        """
        current, branch = await self._store.newest(name), await self._store.newest(line)
        decide.check_branch(current, branch)
        target = await self._version(branch, branch.version if version is None else version)
        if target is None:
            raise RefusedError("unknown", decide.no_version(branch, version or 0))
        adoption = await adoption_of(self._log, current, branch, target, self._version)
        return _prepared(current, decide.adopt(current, adoption, command_id))

    async def edit(
        self, name: str, text: str, version: int | None = None, *, command_id: str | None = None
    ) -> PreparedCommand:
        """Change entries as an edited text says that was made of a version: as given, in its title, or the newest."""
        current = await self._store.newest(name)
        number = decide.edit_base(current, text, version)
        base = await self._version(current, number)
        return _prepared(current, decide.edit(current, number, base, text, command_id))

    async def keep(self, name: str, ids: Sequence[str], *, command_id: str | None = None) -> PreparedCommand:
        """Stand behind entries, and show agents those that are only proposed."""
        current = await self._store.newest(name)
        return _prepared(current, decide.keep(current, ids, command_id))

    async def import_(
        self,
        name: str,
        given: Playbook,
        form: Format,
        *,
        command_id: str | None = None,
        by_hand: bool = True,
    ) -> PreparedCommand:
        """Replace a playbook's content by what was read as ``form``, or start one; ``by_hand``: a person does."""
        current = await self._store.newest(name)
        return _prepared(current, decide.import_(current, given, form, command_id, by_hand=by_hand))

    async def revoke(
        self, name: str, chosen: Sequence[str], *, command_id: str | None = None
    ) -> PreparedCommand:
        """Take reflections back, chosen by ids or by rules: entries that rest on them alone go.

        They are a playbook's and its branches', whichever of these is named: what is poison on one is on all.

        Raises
        ------
        PoisonError
            If what they taught cannot be looked up in time.
        RefusedError
            If nothing has such an id, no reflection is meant by a rule, or a rule cannot be read.
        """
        newest = await self._store.newest(playbook_of(name))
        decide.check_live(newest)
        branches = await self._store.branches(newest.name)
        current, *_ = lines = [await with_revoked(self._log, line) for line in (newest, *branches)]
        if not chosen:
            raise RefusedError("invalid", "name what to revoke: ids or rules")
        try:
            these = await meant(self._log, lines, chosen, now_ms=self._clock.now_ms(), known=self._known())
        except ValueError as error:
            raise RefusedError("invalid", str(error)) from error
        command = decide.revoke(
            lines,
            these.ids,
            these.unknown,
            command_id,
            rules=these.rules,
            retained_from=these.retained_from,
        )
        outlook, *others = [await self._outlook(line, these, command) for line in lines]
        outlook = replace(outlook, branches=tuple(others))
        return PreparedCommand(
            command=command,
            current=current,
            version=current.version,
            labels=outlook.labels,  # of the playbook itself; those of branches are in their outlooks
            outlook=outlook,
        )

    async def pause(
        self, name: str, until_ms: int | None = None, *, command_id: str | None = None
    ) -> PreparedCommand:
        """Let a playbook and its branches learn nothing until a time, or as long as what waits is retained."""
        current, now_ms = await self._store.newest(name), self._clock.now_ms()
        decide.check_live(current)
        latest_ms = latest_end(await waiting(self._log), now_ms)
        return _prepared(current, decide.pause(current, until_ms, latest_ms, now_ms, command_id))

    async def resume(self, name: str, *, command_id: str | None = None) -> PreparedCommand:
        """Let a paused playbook learn again, from everything that waits."""
        current = await self._store.newest(name)
        return _prepared(current, decide.resume(current, self._clock.now_ms(), command_id))

    async def delete(self, name: str, *, command_id: str | None = None) -> PreparedCommand:
        """Delete a playbook and its labels for all subscribers; its history stays, and rollback brings it back."""
        current = await self._store.newest(name)
        branches = [line.name for line in await self._store.branches(name)]
        return _prepared(current, decide.delete(current, branches, command_id))

    async def consolidate(self, name: str, *, command_id: str | None = None) -> PreparedCommand:
        """Let the model merge entries that are alike and judge those that are mostly harmful."""
        current = await self._store.newest(name)
        return _prepared(current, decide.consolidate(current, command_id, embeds=self._embeds))

    async def branch(
        self, name: str, branch: str, settings: Mapping[str, Any], *, command_id: str | None = None
    ) -> PreparedCommand:
        """Fork ``NAME@branch``, which learns from the playbook's reflections under settings of its own."""
        line = await self._store.newest(decide.line_of(name, branch))
        current = await self._store.newest(name)
        return _prepared(line, decide.branch(current, line, settings, command_id))

    async def flush(self, name: str, newest: int, *, command_id: str | None = None) -> PreparedCommand:
        """Close the window up to ``newest``, the offset of the last reflection seen."""
        current = await self._store.newest(name)
        again = await self._flushed(name, command_id) if command_id else None
        return _prepared(current, decide.flush(current, newest, again, command_id))

    async def _version(self, current: Playbook, number: int) -> Playbook | None:
        if number == current.version:
            return current
        return await self._store.version(current.name, number) if 0 < number < current.version else None

    async def _outlook(self, current: Playbook, these: Meant, command: Command | None) -> Outlook:
        """Return what a revocation does; labels serve what is revoked if an entry there is gone or another now."""
        barred = with_revocation(current, command) if command else current
        done = await recomputed(
            self._log, current, barred, retained_from=retained_from(barred), budget_tokens=NO_BUDGET
        )
        other = {change.entry_id for change in done.changes if change.kind != "add"}
        labels = {label.label: label.version for label in (await self._store.labels(current.name)).values()}
        serving = {
            number for number in set(labels.values()) if await self._says_more(current, number, barred)
        }
        return Outlook(
            reflections=these.ids,
            rules=these.rules,
            current=current,
            recomputed=done,
            calls=await calls_for(self._log, current.name, done),
            copies=await copies_of(
                self._log, current.name, (entry.content for entry in current.entries if entry.id in other)
            ),
            labels={label: number for label, number in sorted(labels.items()) if number in serving},
        )

    async def _says_more(self, current: Playbook, number: int, barred: Playbook) -> bool:
        """Return whether a version, even one that a rollback left behind, says more than without what is revoked."""
        version = await self._version(current, number)
        if version is None:
            return False
        left = await recomputed(
            self._log, version, barred, retained_from=retained_from(barred), budget_tokens=NO_BUDGET
        )
        return any(change.kind != "add" for change in left.changes)

    async def _flushed(self, name: str, command_id: str) -> int | None:
        """Return how far a flush of this id went."""
        async with aclosing(messages(self._log, topics.COMMANDS, name)) as sent:
            async for command in sent:
                if command.kind == "flush" and command.command_id == command_id:
                    return command.through_offset
        return None

    # ---- sent and awaited

    async def send(self, command: Command) -> Sent:
        """Write a command under the name of who asks.

        Raises
        ------
        RefusedError
            If it is too large; then no part of it is written.
        """
        stamped = {"issued_at_ms": self._clock.now_ms(), "issued_by": self._issued_by}
        parts = decide.parts(command.model_copy(update=stamped))
        try:
            outgoing = [topics.COMMANDS.record(part) for part in parts]
        except CodecError as error:
            complaint = f"this {command.kind} of {command.playbook} cannot be sent: {error}"
            raise RefusedError("too_large", complaint) from error
        source = await partition_of(self._log, topics.COMMANDS, command.playbook)
        offsets = await self._store.write(*outgoing)
        return Sent(parts=parts, partition=source.partition, offsets=offsets)

    async def carried_out(self, command: Command, timeout_s: float) -> Effect | None:
        """Write a command and wait for its effect, as ``send`` and ``outcome`` do."""
        return await self.outcome(await self.send(command), timeout_s)

    async def outcome(self, sent: Sent, timeout_s: float) -> Effect | None:
        """Wait for the version, or the label, that a command, all parts of it, makes; None: not within ``timeout_s``.

        Raises
        ------
        RefusedError
            If the service that carries it out refuses it.
        """
        made = asyncio.create_task(self._effect(sent))
        refused = asyncio.create_task(self._store.refusal(sent))
        try:
            done, _ = await asyncio.wait(
                {made, refused}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if made in done:
                return made.result()
            if refused in done:
                letter = refused.result()
                raise RefusedError("conflict", f"{letter.service} refused it: {letter.reason}")
            return None
        finally:
            for task in (made, refused):
                task.cancel()
            await asyncio.gather(made, refused, return_exceptions=True)

    async def _effect(self, sent: Sent) -> Effect | None:
        return [await self._store.effect(part) for part in sent.parts][-1]


def _prepared(current: Playbook, command: Command | None) -> PreparedCommand:
    return PreparedCommand(command=command, current=current, version=current.version)
