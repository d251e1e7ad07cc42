"""The next versions of a playbook and its branches from a command; pure."""

from combee.adapters.ports import PoisonError
from combee.core.commands import check_branch, has_branches
from combee.core.playbook import executing
from combee.core.playbook.lineage.branching import Adoption, with_revocations_of
from combee.core.playbook.lineage.recomputing import Recomputed
from combee.publish.basis import AdoptionOf, Basis, PublishState
from combee_schemas.base import playbook_of
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook


def versions_after(basis: Basis, command: Command, offset: int | None = None) -> tuple[Playbook, ...]:
    """Return the versions that a command makes; ``offset``: where it stands, if it came as a record.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError, RefusedError, InapplicableError
        If it cannot be executed on the playbook as it is.
    """
    lines = [command.playbook]
    if command.kind == "revoke":
        # A reflection revoked on one line is revoked on all; their versions are written in one transaction.
        lines += [line.name for line in basis.state.branches(command.playbook)]
    return tuple(_after(basis, command, line, offset) for line in lines)


def _after(basis: Basis, command: Command, line: str, offset: int | None) -> Playbook:
    # For a deleted branch: reflections revoked since then stay out when it comes back.
    playbook = with_revocations_of(basis.current(line), basis.current(playbook_of(line)))
    target = _target(basis, command, playbook)
    adoption = _adoption(basis, command, playbook)
    recomputed = _recomputed(basis, command, playbook, target, adoption)
    if command.kind == "delete":
        playbook = _with_label_commands(basis.state, playbook)
    return executing.after_command(
        playbook,
        command,
        playbook.command_offset if offset is None else offset,
        target=target,
        budget_tokens=basis.rules.budget_tokens,
        now_ms=basis.now_ms,
        adoption=adoption,
        recomputed=recomputed,
    )


def _target(basis: Basis, command: Command, playbook: Playbook) -> Playbook | None:
    """Return the other version that a command names, if any."""
    if command.kind in {"delete", "revoke"} and playbook.origin == "delete":
        raise PoisonError(f"there is no playbook {command.playbook} any more")
    if command.kind == "delete" and (branches := basis.state.branches(playbook.name)):
        raise PoisonError(has_branches(playbook.name, [line.name for line in branches]))
    if command.kind == "rollback":
        return basis.retained_version(playbook, command.version)
    if command.kind == "edit" and command.base_version not in {0, playbook.version}:
        return basis.retained_version(playbook, command.base_version)
    return None


def _adoption(basis: Basis, command: Command, playbook: Playbook) -> Adoption | None:
    if command.kind != "adopt":
        return None
    line = basis.current(command.line)
    check_branch(playbook, line)
    target = basis.retained_version(line, command.version)
    if target.branch is not None:
        basis.retained_version(playbook, target.branch.version)
    return basis.read(AdoptionOf(target.name, target.version, playbook, line, target))


def _recomputed(
    basis: Basis, command: Command, playbook: Playbook, target: Playbook | None, adoption: Adoption | None
) -> Recomputed | None:
    """Return the command's version recomputed without revoked reflections; None: it rests on none of them."""
    if command.kind == "revoke":
        return basis.remainder(playbook, executing.with_revocation(playbook, command))
    if command.kind == "rollback" and target is not None:
        return basis.remainder(target, playbook)
    if adoption is not None:
        return basis.remainder(adoption.target, adoption.prepared(playbook))
    return None


def _with_label_commands(state: PublishState, playbook: Playbook) -> Playbook:
    """Return a playbook that remembers its labels' commands, too: a deletion takes the labels."""
    moved = (command for label in state.labels_of(playbook.name).values() for command in label.commands)
    return playbook.model_copy(update={"commands": (*moved, *playbook.commands)})
