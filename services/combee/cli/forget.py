"""``combee forget``: erase a person's data, or runs, from a prefix, archives and caches."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import SESSION_S
from combee.adapters.ports import ConfigurationError, FatalError
from combee.assembly.backends import check_topics, connection
from combee.assembly.local.stack_file import data_dir, of_brokers
from combee.cli.playbook.files import STDIN
from combee.cli.shared.console import confirmed, output, print_json, print_whole, reading, remark
from combee.cli.shared.log import open_broker
from combee.cli.shared.options import AsJson, Servers, checked_name, checked_prefix, playbook_names
from combee.cli.shared.sending import issuer
from combee.cli.shared.settings import deployed_settings
from combee.core.log.erasure.selector import Marker, Selector, Subjects
from combee.core.log.replaying.selection import FORMS, Selection, check_apart
from combee.log.archive import forgetting
from combee.log.archive.erasing import Wish, is_empty
from combee.log.archive.forgetting import Place
from combee.process.settings.loading import Settings
from combee_schemas.erasure import Erasure, SelectorKind
from combee_schemas.topics import TOPICS

KAFKA_DELETES = (
    "a minute later (the brokers' log.segment.delete.delay.ms) its files are gone from their disks"
)
OURS_DELETES = "a second later its files are gone from this machine's disk"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee forget --subject-file - --dry-run")(forget)


def forget(
    *,
    subject_file: Annotated[
        str | None, typer.Option(help="names of the person, one spelling a line; - reads stdin")
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(help="one spelling on the command line, visible to other users of this machine"),
    ] = None,
    trace: Annotated[str | None, typer.Option(help="a run, by the id of its trace or its reflection")] = None,
    rule: Annotated[list[str] | None, typer.Option("--filter", help=f"runs: {FORMS}")] = None,
    playbook: Annotated[
        str | None,
        typer.Option(
            help="only runs of this playbook",
            callback=lambda value: value and checked_name(value),
            autocompletion=playbook_names,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="the new, empty topic prefix for the remaining records; the old one is deleted",
            callback=lambda value: value and checked_prefix(value),
        ),
    ] = None,
    archive: Annotated[
        list[Path] | None, typer.Option(help="an archive to rewrite as well; may be repeated")
    ] = None,
    cache_dir: Annotated[
        list[Path] | None,
        typer.Option(help="a cache_dir of agents on this machine, whose playbooks are deleted"),
    ] = None,
    with_playbooks: Annotated[
        bool, typer.Option("--with-playbooks", help="delete playbooks whose names contain the person's")
    ] = False,
    work: Annotated[
        Path | None, typer.Option(help="folder for temporary copies; by default the data directory")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only count what would be erased; services may run")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Erase a person's data, or runs and what only they taught.

    The remaining records move to a new prefix.
    """
    selector = _selector(subject_file, subject or (), trace, rule or (), playbook or "")
    archives = tuple(archive or ())
    if not (to or archives or dry_run):
        raise typer.BadParameter("name the new prefix (--to), or archives (--archive), or say --dry-run")
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    wish = Wish(
        selector=selector,
        marker=Marker(secrets.token_bytes(16)),
        erasure_id=secrets.token_hex(8),
        issued_by=issuer(),
        at_ms=SystemClock().now_ms(),
        with_playbooks=with_playbooks,
    )
    folder = work or data_dir(settings) / f"forget-{of_brokers(settings)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    old = settings.kafka.topic_prefix
    if to == old:
        raise typer.BadParameter(
            f"--to names the prefix itself: the remaining records of {old} go to another one"
        )
    if (
        to
        and not dry_run
        and not (yes or confirmed(f"move the remaining records of {old} to {to}, and delete {old}?"))
    ):
        raise FatalError("nothing was erased; --dry-run counts what would be erased")
    erasures = asyncio.run(_forget(settings, wish, folder, archives, to, dry_run=dry_run))
    if not dry_run:
        _empty_caches(settings, cache_dir or (), moved=to is not None)
    with suppress(OSError):
        folder.rmdir()
    names = [*([old] if to or dry_run else []), *map(str, archives)]
    erased = dict(zip(names, erasures, strict=True)) if erasures else {}
    deletes = OURS_DELETES if settings.kafka.bootstrap_servers is None else KAFKA_DELETES
    _tell(erased, to, deletes, dry_run=dry_run, as_json=as_json)


def _selector(
    subject_file: str | None, given: Sequence[str], trace: str | None, rules: Sequence[str], playbook: str
) -> Selector:
    """Return the selector of the options; no error text repeats a person's name."""
    chosen: dict[SelectorKind, bool] = {
        "subject": bool(subject_file or given),
        "trace": trace is not None,
        "filter": bool(rules),
    }
    if sum(chosen.values()) != 1:
        raise typer.BadParameter("give one of --subject-file (or --subject), --trace and --filter")
    kind = next(kind for kind, is_chosen in chosen.items() if is_chosen)
    if kind == "subject":
        subjects = (*given, *(_lines(subject_file) if subject_file else ()))
        if not subjects or playbook:
            raise typer.BadParameter("a person is forgotten in all playbooks: give a name, and no --playbook")
        try:
            return Selector(subjects=Subjects(subjects))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    try:
        parsed = tuple(map(Selection.parse, rules)) if trace is None else (Selection("id", trace),)
        check_apart(parsed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return Selector(rules=parsed, playbook=playbook, kind=kind)


def _lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read as text") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


async def _forget(
    settings: Settings, wish: Wish, folder: Path, archives: Sequence[Path], to: str | None, *, dry_run: bool
) -> Sequence[Erasure]:
    if not (to or dry_run):
        return forgetting.erased_files(archives, wish, folder, replace=archives)
    async with open_broker(settings) as servers, _place(settings, servers) as old:
        if dry_run:
            return await forgetting.survey(old, folder, wish, archives, SystemClock())
        assert to is not None  # noqa: S101 - else it would be archives alone
        async with _place(deployed_settings(bootstrap_servers=servers, topic_prefix=to), servers) as new:
            if await forgetting.is_moved(old, new):
                remark(
                    f"the remaining records of {old.prefix} are in {to} already; {old.prefix} is deleted now"
                )
                await forgetting.finish(old, new, folder, archives)
                return ()
            await forgetting.begin_anew(old, new, folder)
            await check_topics(settings, connection(settings, servers))
            described = await KafkaAdmin(connection(settings, servers)).describe(t.name for t in TOPICS)
            with reading() as progress:
                erasures = await forgetting.move(
                    old,
                    new,
                    folder,
                    wish,
                    archives,
                    configs={name: state.config for name, state in described.items()},
                    replication=settings.kafka.replication_factor,
                    clock=SystemClock(),
                    on_progress=progress,
                    session_s=SESSION_S,
                    tell=remark,
                )
            if not is_empty(erasures[0]):
                await forgetting.finish(old, new, folder, archives)
            return erasures


@asynccontextmanager
async def _place(settings: Settings, servers: str) -> AsyncIterator[Place]:
    connected = connection(settings, servers)
    log = KafkaLog(connected)
    try:
        yield Place(prefix=settings.kafka.topic_prefix, log=log, admin=KafkaAdmin(connected))
    finally:
        await log.close()


def _empty_caches(settings: Settings, folders: Sequence[Path], *, moved: bool) -> None:
    """Delete the ledger's checkpoint of the old prefix, and agents' cached playbooks on this machine."""
    if moved:
        with suppress(ModuleNotFoundError):
            (data_dir(settings) / f"ledger-{of_brokers(settings)}.json").unlink(missing_ok=True)
    for folder in folders:
        for pattern in ("*@*.json", "*.part"):
            for file in folder.glob(pattern):
                file.unlink(missing_ok=True)


def _tell(
    erasures: dict[str, Erasure], to: str | None, deletes: str, *, dry_run: bool, as_json: bool
) -> None:
    nothing = bool(erasures) and all(map(is_empty, erasures.values()))
    if as_json:
        document = {name: erasure.model_dump() for name, erasure in erasures.items()}
        print_json({"dry_run": dry_run, "to": None if nothing else to, "erased": document})
        return
    for name, erasure in erasures.items():
        counts = sorted(erasure.dropped.keys() | erasure.rewritten.keys())
        table = Table(name, "gone", "rewritten", box=None)
        for topic in counts:
            gone, rewritten = erasure.dropped.get(topic, 0), erasure.rewritten.get(topic, 0)
            table.add_row(topic, str(gone), str(rewritten))
        print_whole(table)
        output().print(
            f"{erasure.entries} entries of playbooks are removed from all versions that have them",
            markup=False,
        )
    if nothing:
        remark("nothing matches: nothing is changed")
    elif to and not dry_run:
        said = (
            f"start services and agents with COMBEE_TOPIC_PREFIX={to}; the old prefix is deleted: {deletes}"
        )
        output().print(said, markup=False, soft_wrap=True)
