"""What a command to a playbook means: whether it may be, whether it changes anything, and under which id.

Each function gets the playbook as it stands and returns the command to send, or None if nothing is to be done. The
command line, the gateway and the dashboard decide here, so that they answer alike. Who asks and when is added when
the command is sent.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from combee.core.formats.editing import edit_operations, edited_version
from combee.core.formats.files import Format, carried_over, held_by, says_the_same, write_playbook
from combee.core.gate.gate import Gate, judged, not_judged
from combee.core.gate.judges import PERSON
from combee.core.log.replaying.selection import Selection
from combee.core.names.identity import content_id
from combee.core.playbook.budget import budget_for, oversize
from combee.core.playbook.lineage.branching import Adoption
from combee.core.playbook.lineage.evidence import rules_for
from combee.core.playbook.operations import clean_playbook
from combee.core.playbook.pausing import order_of
from combee.core.playbook.results.clusters import clusters
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import parted
from combee_schemas.base import BranchName, branch_in, is_branch_of, playbook_of
from combee_schemas.command import Command, CommandKind
from combee_schemas.gate import Verdict
from combee_schemas.plan import BranchSettings
from combee_schemas.playbook import LABEL_PATTERN, LATEST, PRODUCTION, Entry, Label, Playbook
from combee_schemas.scan import Operation, OperationKind

CLAIMS = ("sources", "recognised", "support", "replaces", "rivals")
"""Fields of a proposed entry that decide when agents are shown it, and instead of which others."""
ANY_SIZE = 10**9
"""Tokens that no playbook has."""
Reason = Literal["absent", "unknown", "invalid", "conflict", "too_large"]
"""absent: there is no such playbook; unknown: it has no such version or reflection; invalid: what was sent cannot be
read; conflict: it cannot be done with what there is."""


class RefusedError(ValueError):
    """A command that cannot be; the message says why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def is_deleted(playbook: Playbook) -> bool:
    """Return whether this is what remains of a deleted playbook."""
    return playbook.origin == "delete"


def absence(current: Playbook) -> str:
    """Return why there is no such playbook; ``current`` is version 0, or what remains of a deleted one."""
    if is_deleted(current):
        return f"there is no playbook {current.name} any more: version {current.version} deleted it"
    return f"there is no playbook {current.name}"


def check_live(current: Playbook) -> None:
    """Refuse what only a playbook that is there can do.

    Raises
    ------
    RefusedError
        If there never was one, or it is deleted.
    """
    if not current.version or is_deleted(current):
        raise RefusedError("absent", absence(current))


def no_version(current: Playbook, version: int | str) -> str:
    """Return why a playbook has no such version, and which it has."""
    if is_deleted(current):
        known = f"from 1 to {current.version - 1}"
        return f"{current.name} is deleted and has no version {version}: name the one to bring back, {known}"
    return f"{current.name} has no version {version}; the newest is {current.version}"


def label_fault(label: str) -> str | None:
    """Return why this cannot be a label; None if it can."""
    if label == LATEST:
        return f"{LATEST} moves by itself: it is not a label to set"
    if not re.fullmatch(LABEL_PATTERN, label):
        return f"{label[:80]!r} is not a label: a letter, then letters, digits and . _ - (at most 80)"
    return None


def promote(
    current: Playbook, known: Label | None, label: str, version: int, command_id: str | None
) -> Command | None:
    """Let a label point at a version that there is; ``known`` is the label as it stands.

    Raises
    ------
    RefusedError
        If there is no such playbook, or this cannot be a label.
    """
    check_live(current)
    if fault := label_fault(label):
        raise RefusedError("conflict", fault)
    if known and (known.version == version or command_id in known.commands):
        return None
    # A label that went with its playbook may be set again: that is another command.
    moved = str(known.command_offset) if known else f"version {current.version}"
    own = content_id("promote", current.name, label, str(version), moved)
    return _command("promote", current, command_id or own, label=label, version=version)


def judge(
    current: Playbook,
    gate: Gate | None,
    version: int | None,
    command_id: str | None,
    *,
    accepts: bool,
    reason: str,
    production: int | None = None,
    entry_ids: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> Command | None:
    """Say of the candidate, or of a version that is thought to be it, that agents may read it, or never.

    ``production``: the version that it was seen beside; None: whichever agents read. ``entry_ids`` or ``sources``:
    what alone is rejected.

    Raises
    ------
    RefusedError
        If there is no such candidate, nobody asks a person about it, or entries and sources are named at once.
    """
    check_live(current)
    if entry_ids and sources:
        raise RefusedError(
            "invalid", "name entries or sources to reject, not both: one rejection after the other"
        )
    if gate is None:
        raise RefusedError("conflict", f"{current.name} has no gate: COMBEE_GATE turns it on")
    if command_id in gate.production.commands:
        return None
    number = version or (gate.candidate.version if gate.candidate else current.version)
    verdict = Verdict(
        playbook=current.name,
        candidate=number,
        production=gate.production.version if production is None else production,
        judge=PERSON,
        accepts=accepts,
    )
    if judged(gate, verdict) is None:
        raise RefusedError("conflict", not_judged(gate, verdict))
    kind: CommandKind = "approve" if accepts else "reject"
    since = str(gate.production.moved_at_ms)
    own = content_id(
        kind, current.name, str(number), str(gate.production.version), since, *entry_ids, *sources
    )
    return _command(
        kind,
        current,
        command_id or own,
        label=PRODUCTION,
        version=number,
        base_version=gate.production.version,
        reason=reason,
        entry_ids=tuple(dict.fromkeys(entry_ids)),
        sources=tuple(dict.fromkeys(sources)),
    )


def rollback(
    current: Playbook, version: int, target: Playbook | None, command_id: str | None
) -> Command | None:
    """Make a new version that says what ``target`` says; a deleted playbook comes back, an empty version too.

    Raises
    ------
    RefusedError
        If there was never such a playbook, or it has no such version (``target`` None).
    """
    if not current.version:
        raise RefusedError("absent", absence(current))
    if command_id in current.commands:
        return None
    if target is None:
        raise RefusedError("unknown", no_version(current, version))
    if not is_deleted(current) and says_the_same(current, target, "json"):
        return None
    own = _own("rollback", current, str(version))
    return _command("rollback", current, command_id or own, version=version)


def check_branch(current: Playbook, line: Playbook) -> None:
    """Refuse what only a playbook and a branch of it can do.

    Raises
    ------
    RefusedError
        If there is no such playbook, or ``line`` is no branch of it that is there.
    """
    check_live(current)
    if not is_branch_of(line.name, current.name):
        raise RefusedError("conflict", f"{line.name} is not a branch of {current.name}")
    if not line.version or is_deleted(line):
        raise RefusedError("unknown", absence(line))


def adopt(current: Playbook, adoption: Adoption, command_id: str | None) -> Command | None:
    """Make a new version that says what a version of a branch says; see ``check_branch``.

    Raises
    ------
    RefusedError
        If the branch has not read what the playbook has learned from, or learns no more.
    """
    line, target = adoption.line, adoption.target
    took = current.adopted and (current.adopted.line, current.adopted.version)
    is_done = took == (line.name, target.version)
    if is_done or command_id in current.commands or says_the_same(current, target, "json"):
        return None
    if reason := adoption.refusal():
        raise RefusedError("conflict", reason)
    own = _own("adopt", current, line.name, str(target.version))
    return _command("adopt", current, command_id or own, branch=branch_in(line.name), version=target.version)


def edit_base(current: Playbook, text: str, version: int | None = None) -> int:
    """Return the version that an edited text was made of: as given, else as its title says, else the newest."""
    return version or edited_version(text) or current.version


def edit(
    current: Playbook, version: int, base: Playbook | None, text: str, command_id: str | None
) -> Command | None:
    """Change entries as an edited text says; publish refuses it if one of them has changed since ``base``.

    Raises
    ------
    RefusedError
        If there is no such playbook, it has no such version (``base`` None), or the text cannot be read.
    """
    check_live(current)
    if command_id in current.commands:
        return None
    if base is None:
        raise RefusedError("unknown", no_version(current, version))
    try:
        operations = edit_operations(base, text)
    except ValueError as error:
        raise RefusedError("invalid", f"the edited text: {error}") from error
    if not operations:
        return None
    own = content_id("edit", base.name, str(base.version), text)
    return _command("edit", current, command_id or own, operations=operations, base_version=base.version)


def keep(current: Playbook, ids: Sequence[str], command_id: str | None) -> Command | None:
    """Stand behind entries, and show agents those that are only proposed: an edit that leaves their words.

    Raises
    ------
    RefusedError
        If there is no such playbook, or no such entry.
    """
    check_live(current)
    if command_id in current.commands:
        return None
    known = {entry.id: entry for entry in current.entries}
    if unknown := [entry_id for entry_id in ids if entry_id not in known]:
        raise RefusedError("unknown", f"{current.name} has no entry {', '.join(unknown)}")
    protects = current.holds == "entries"
    kept = [
        entry
        for entry in map(known.__getitem__, dict.fromkeys(ids))
        if not entry.is_active or (protects and not entry.by_hand)
    ]
    if not kept:
        return None
    operations = tuple(
        Operation(
            kind=OperationKind.UPDATE, section=entry.section, content=entry.content, entry_ids=(entry.id,)
        )
        for entry in kept
    )
    own = content_id("keep", current.name, str(current.version), *(entry.id for entry in kept))
    return _command("edit", current, command_id or own, operations=operations, base_version=current.version)


def import_(
    current: Playbook, given: Playbook, form: Format, command_id: str | None, *, by_hand: bool = True
) -> Command | None:
    """Replace the content by a text's, or start a playbook; ``form`` is what the text was read as.

    A person who imports entries stands behind them, except behind proposed ones, which wait for support of this
    playbook: that which a file claims is forgotten. Without ``by_hand`` the text alone
    says which entries a person stands behind, and the budget is the configured one, as a replay needs it. What a
    person imports asks for a budget that holds it.

    The id names content and base version: the same text sent twice has one effect, while going back to an earlier
    content is a new import. What remains of a deleted playbook says nothing, and is another base.

    Raises
    ------
    RefusedError
        If it would start a branch: only a fork does. Or if no playbook can hold it.
    """
    if branch_in(current.name) and not current.version:
        raise RefusedError("absent", absence(current))
    given = clean_playbook(given)
    same = not is_deleted(current) and says_the_same(current, given, form)
    if same or command_id in current.commands:
        return None
    given = given.model_copy(update={"name": current.name})
    own = content_id(
        "import", current.name, write_playbook(given, "json", everything=True), str(current.version)
    )
    entries, holds = carried_over(current, given, form), held_by(current, given, form)
    if by_hand and holds == "entries":
        waiting = {entry.id: entry for entry in current.entries if not entry.is_active}
        entries = tuple(_by_hand(entry, waiting.get(entry.id)) for entry in entries)
    if reason := oversize(entries, given.sections):
        raise RefusedError("too_large", f"this import of {current.name} has {reason}")
    return _command(
        "import",
        current,
        command_id or own,
        entries=entries,
        sections=given.sections,
        counters=given.counters,
        holds=holds,
        budget_tokens=budget_for(given, entries) if by_hand else 0,
    )


def _by_hand(entry: Entry, waiting: Entry | None) -> Entry:
    """Return an entry that a person imports; ``waiting`` is the playbook's proposed entry of its id."""
    if entry.is_active:
        return entry.model_copy(update={"by_hand": True})
    known = waiting if waiting and waiting.content == entry.content else None
    claims = {name: getattr(known, name, ()) for name in CLAIMS}
    return entry.model_copy(update={**claims, "by_hand": known is not None and known.by_hand})


def revoke(
    lines: Sequence[Playbook],
    ids: Sequence[str],
    unknown: Collection[str],
    command_id: str | None,
    *,
    rules: Sequence[str] = (),
    retained_from: int = 0,
) -> Command | None:
    """Take reflections back, on a playbook and its branches (``lines``, the playbook first).

    ``unknown`` are the ids and rules that mean none of its reflections, ``rules`` are what chose ``ids``; empty: they
    were named. The command names those that are not revoked on every line.

    Raises
    ------
    RefusedError
        If there is no such playbook, or reflections are unknown.
    """
    current = lines[0]
    check_live(current)
    if command_id in current.commands:
        return None
    if unknown:
        raise RefusedError("unknown", f"{current.name} has no reflection {', '.join(unknown)}")
    if all(_is_revoked(line, ids, rules) for line in lines):
        return None
    gone = frozenset(current.revoked).intersection(*(line.revoked for line in lines))
    return _command(
        "revoke",
        current,
        command_id or _own("revoke", current, *(rules or ids)),
        reflection_ids=tuple(reflection_id for reflection_id in ids if reflection_id not in gone),
        rules=tuple(rules),
        retained_from=retained_from,
    )


def parts(command: Command) -> list[Command]:
    """Return the commands that a command is sent as: a large revocation is several, the last under its own id.

    The id of an earlier part follows from what it names: sent again, it has one effect.
    """
    *earlier, last = parted(command.reflection_ids)
    if not earlier:
        return [command]
    rules = tuple(rule.rule for rule in rules_for(command.rules, command.reflection_ids, version=0))
    ids = [*(content_id("revoke", command.command_id, *part) for part in earlier), command.command_id]
    return [
        command.model_copy(update={"command_id": command_id, "reflection_ids": part, "rules": rules})
        for command_id, part in zip(ids, (*earlier, last), strict=True)
    ]


def _is_revoked(line: Playbook, ids: Collection[str], rules: Collection[str]) -> bool:
    known = {revocation.rule for revocation in line.revocations}
    later = (rule for rule in rules if Selection.parse(rule).is_open_ended)
    return set(ids) <= set(line.revoked) and known.issuperset(later)


def has_branches(name: str, branches: Sequence[str]) -> str:
    """Return why a playbook that has branches cannot be deleted, and the remedy."""
    lines = ", ".join(sorted(branches))
    return f"{name} has branches, which learn from its reflections: delete them first ({lines})"


def pause(
    current: Playbook, until_ms: int | None, latest_ms: int, now_ms: int, command_id: str | None
) -> Command | None:
    """Let a playbook learn nothing until a time; ``latest_ms``: when what waits must be read, the end by default.

    Raises
    ------
    RefusedError
        If there is no such playbook, the time has passed, or what waits already is about to expire.
    """
    check_live(current)
    if command_id in current.commands:
        return None
    if until_ms is not None and until_ms <= now_ms:
        raise RefusedError("invalid", "a pause ends later than now: this time has passed")
    if latest_ms <= now_ms:
        raise RefusedError(
            "conflict",
            f"{current.name} cannot be paused: what waits already is about to expire; read it first",
        )
    until = latest_ms if until_ms is None else min(until_ms, latest_ms)
    known = order_of([current.paused], now_ms)
    if known and (until_ms is None or known.until_ms == until):
        return None
    return _command(
        "pause",
        current,
        command_id or _own("pause", current, str(until)),
        until_ms=until,
        by_retention=until == latest_ms,
    )


def resume(current: Playbook, now_ms: int, command_id: str | None) -> Command | None:
    """Let a paused playbook learn again, from what waits on; nothing is to be done if it is not paused.

    Raises
    ------
    RefusedError
        If there is no such playbook.
    """
    check_live(current)
    if order_of([current.paused], now_ms) is None:
        return None
    return _command("resume", current, command_id or _own("resume", current))


def delete(current: Playbook, branches: Sequence[str], command_id: str | None) -> Command | None:
    """Delete a playbook and its labels; its history stays. ``branches`` are its branches that are there.

    Raises
    ------
    RefusedError
        If there is none, unless this very command deleted it; or if it has branches.
    """
    if is_deleted(current) and command_id in current.commands:
        return None
    check_live(current)
    if branches:
        raise RefusedError("conflict", has_branches(current.name, branches))
    return _command("delete", current, command_id or _own("delete", current))


def flush(current: Playbook, newest: int, again: int | None, command_id: str | None) -> Command | None:
    """Close the window up to the newest reflection, so that what waits becomes a version.

    ``newest`` is the offset of the last reflection seen, ``again`` how far a flush of this id went already: no
    version remembers it.

    Raises
    ------
    RefusedError
        If nothing waits, and there is no playbook either.
    """
    if again is None and current.through_offset >= newest:
        if not current.version:
            raise RefusedError("absent", absence(current))
        return None
    through = newest if again is None else again
    own = content_id("flush", current.name, str(through))
    return _command("flush", current, command_id or own, through_offset=through)


def consolidate(current: Playbook, command_id: str | None, *, embeds: bool = False) -> Command | None:
    """Ask the model to merge entries that are alike and to judge harmful ones; nothing is to be done without any.

    ``embeds``: embeddings may find some that their words do not show.

    Raises
    ------
    RefusedError
        If there is no such playbook, or it holds whole texts.
    """
    check_live(current)
    if command_id in current.commands:
        return None
    if current.holds != "entries":
        raise RefusedError("conflict", f"{current.name} holds {current.holds}: only entries are consolidated")
    entries = shown(current).entries
    may_find = embeds and len(entries) > 1
    return consolidation(current, command_id) if may_find or clusters(entries, ANY_SIZE) else None


def consolidation(current: Playbook, command_id: str | None = None) -> Command:
    """Return the command to consolidate a playbook as it stands; given twice, and by itself, it has one effect."""
    return _command("consolidate", current, command_id or _own("consolidate", current))


def line_of(playbook: str, branch: str) -> str:
    """Return the line that a branch of a playbook is.

    Raises
    ------
    RefusedError
        If the playbook is a branch itself, or a branch cannot have this name.
    """
    if playbook_of(playbook) != playbook:
        whole = playbook_of(playbook)
        raise RefusedError("conflict", f"{playbook} is a branch itself: make the branch of {whole}")
    try:
        TypeAdapter(BranchName).validate_python(branch or "@")
    except ValidationError as error:
        why = "letters, digits and . _ - (at most 40, the first a letter or digit)"
        raise RefusedError("invalid", f"{branch[:80]!r} is not the name of a branch: {why}") from error
    return f"{playbook}@{branch}"


def branch_settings(given: Mapping[str, Any]) -> BranchSettings:
    """Return what a branch does in its own way; values may be texts, as people write them.

    Raises
    ------
    RefusedError
        If a branch has no such setting, or not with this value.
    """
    known = BranchSettings.model_fields
    if unknown := sorted(given.keys() - known.keys()):
        raise RefusedError(
            "invalid",
            f"a branch has no setting {', '.join(unknown)} of its own; known are {', '.join(known)}",
        )
    try:
        return BranchSettings.model_validate(given)
    except ValidationError as error:
        raise _invalid(error) from error


def branch(
    current: Playbook, line: Playbook, settings: Mapping[str, Any], command_id: str | None
) -> Command | None:
    """Fork ``line`` from a playbook: it begins with its content and learns from its reflections in its own way.

    Raises
    ------
    RefusedError
        If there is no such playbook, the line is there already, or the settings cannot be.
    """
    check_live(current)
    if command_id in line.commands:
        return None
    own = branch_settings(settings)
    if line.version and not is_deleted(line):
        ended = "" if line.branch else ", which learns no more"
        raise RefusedError(
            "conflict",
            f"there is {line.name} already{ended}: delete it first, or give the branch another name",
        )
    by_content = content_id("branch", line.name, own.model_dump_json(), str(line.version))
    branched = line.name.removeprefix(f"{current.name}@")
    return _command("branch", current, command_id or by_content, branch=branched, settings=own)


def subject(command: Command) -> str:
    """Return the playbook or line whose next version is a command's effect."""
    return command.line if command.kind == "branch" else command.playbook


def is_about_a_label(command: Command) -> bool:
    """Return whether a command's effect shows in a label."""
    return command.kind in {"promote", "approve", "reject"}


def has_taken_effect(command: Command, newest: Playbook | Label | None) -> bool:
    """Return whether a command had its effect, given the newest version, or the label, that it is about."""
    if newest is None or isinstance(newest, Label) != is_about_a_label(command):
        return False
    if command.kind == "flush":
        return isinstance(newest, Playbook) and newest.through_offset >= command.through_offset
    return command.command_id in newest.commands


def _own(kind: CommandKind, current: Playbook, *parts: str) -> str:
    """Return an id that names what is asked for and of which version: sent twice, it has one effect."""
    return content_id(kind, current.name, *parts, str(current.version))


def _command(kind: CommandKind, current: Playbook, command_id: str, **fields: Any) -> Command:
    try:
        return Command(command_id=command_id, playbook=current.name, kind=kind, **fields)
    except ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: ValidationError) -> RefusedError:
    first = error.errors(include_url=False, include_input=False)[0]
    return RefusedError("invalid", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
