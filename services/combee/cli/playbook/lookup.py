"""Look up a version of a playbook by number, by label, or as the newest."""

import typer

from combee.adapters.ports import FatalError, Log
from combee.cli.shared.log import open_log
from combee.core.commands import absence, is_deleted, no_version
from combee.core.gate.gate import label_read, labels_by_playbook
from combee.log.history import History, all_labels, labels_of, newest_playbook, newest_snapshots
from combee.process.settings.loading import Settings
from combee_schemas.base import playbook_of
from combee_schemas.playbook import LATEST, NO_LABEL, PRODUCTION, Playbook


async def find_version(log: Log, name: str, version: int | None = None) -> Playbook:
    """Return one version of a playbook, the newest by default.

    Raises
    ------
    FatalError
        If there is no such playbook or version.
    """
    newest = await newest_playbook(log, name)
    if newest is None:
        raise await missing_playbook(log, name)
    if version is None:
        return newest
    playbook = await History(log).exactly(name, version, newest)
    if playbook is None:
        raise FatalError(no_version(newest, version))
    return playbook


async def version_of_options(
    settings: Settings, name: str, version: int | None, label: str | None
) -> Playbook:
    """Return the version that the options of a reading verb choose."""
    check_one_version(version, label)
    async with open_log(settings) as (log, _):
        return await chosen_version(log, name, version, label)


def check_one_version(version: int | None, label: str | None) -> None:
    """Refuse a number together with a label, before a log is opened, which may start a broker."""
    if version is not None and label is not None:
        raise typer.BadParameter("--version and --label name two versions: give one of them")


async def chosen_version(log: Log, name: str, version: int | None, label: str | None) -> Playbook:
    """Return the version with a number or a label; without either the version that agents read."""
    if version is not None:
        return await find_version(log, name, version)
    return await resolve_version(log, name, label or await _read_by_agents(log, name))


async def _read_by_agents(log: Log, name: str) -> str:
    """Return the label that agents read by default.

    Raises
    ------
    FatalError
        If no version has passed the playbook's gate yet.
    """
    production = (await labels_of(log, name)).get(PRODUCTION)
    label = label_read(NO_LABEL, production, await newest_playbook(log, name))
    if label == PRODUCTION and not (production and production.version):
        raise FatalError(
            f"no version of {name} has passed its gate yet: 'combee review {name}' shows what waits there, --label"
            f" {LATEST} the newest version"
        )
    return label


async def missing_playbook(log: Log, name: str) -> FatalError:
    """Return the error for a missing playbook, with a remedy."""
    snapshots = await newest_snapshots(log)
    deleted = snapshots.get(name)
    if deleted is not None:
        back = f"'combee playbook rollback {name} {deleted.version - 1}' brings it back"
        return FatalError(f"{absence(deleted)}; {back}")
    known = (
        ", ".join(snapshot.name for snapshot in snapshots.values() if not is_deleted(snapshot)) or "none yet"
    )
    return FatalError(
        f"there is no playbook {name}; there are: {known}. The first batch of {name} makes version 1:"
        " 'combee status' shows what waits for it"
    )


async def version_number(log: Log, name: str, ref: str) -> int | None:
    """Return the version that a number, a label or ``latest`` names; None: the newest.

    Raises
    ------
    FatalError
        If there is no such label; a deleted playbook has only versions.
    """
    if ref == LATEST:
        return None
    if ref.isascii() and ref.isdigit():
        return int(ref)
    known = (await labels(log)).get(name, {})
    if ref not in known:
        await find_version(log, name)
        listed = ", ".join(sorted(known)) or "none yet"
        raise FatalError(f"{name} has no label {ref}; there are: {listed}; 'latest' is the newest version")
    return known[ref]


async def resolve_version(log: Log, name: str, ref: str) -> Playbook:
    """Return the version that a number, a label or ``latest`` names.

    Raises
    ------
    FatalError
        If there is no such playbook, version or label.
    """
    return await find_version(log, name, await version_number(log, name, ref))


async def resolve_version_or_branch(log: Log, name: str, ref: str) -> Playbook:
    """Return the result of ``resolve_version``; ``ref`` may also be the playbook or a branch of it, for its newest.

    Raises
    ------
    FatalError
        If there is no such playbook, branch, version or label.
    """
    if "@" in ref or ref == playbook_of(name) != name:
        return await find_version(log, ref)
    return await resolve_version(log, name, ref)


async def labels(log: Log) -> dict[str, dict[str, int]]:
    """Return the versions that labels point at, by playbook."""
    return {
        playbook: {name: label.version for name, label in known.items()}
        for playbook, known in labels_by_playbook(await all_labels(log)).items()
    }
