"""``combee learn --from FORMAT DIR``: traces from the runs that another program recorded in a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import track

from combee.cli.shared.console import USAGE, failure, remark
from combee.core.formats.intake import LineError
from combee.core.formats.trajectories.appworld import APPWORLD
from combee.core.formats.trajectories.atif import ATIF, HARBOR
from combee.core.formats.trajectories.sessions import CLAUDE_CODE, CODEX
from combee.core.formats.trajectories.terminal_bench import TERMINAL_BENCH
from combee.core.formats.trajectories.trajectory import TrajectoryFormat, trace_of
from combee.sdk import Redactor
from combee_schemas.model import CHARS_PER_TOKEN
from combee_schemas.trace import Trace

FORMATS = {form.name: form for form in (ATIF, HARBOR, TERMINAL_BENCH, APPWORLD, CLAUDE_CODE, CODEX)}


def read_folder(
    folder: str, name: str, playbook: str, *, trace_tokens: int, err: Console
) -> tuple[list[Trace], int]:
    """Return the runs in a folder and the number of unreadable ones, whose errors are printed."""
    form, root = FORMATS.get(name), Path(folder)
    if form is None:
        raise failure(f"there is no format {name}; there are: {', '.join(FORMATS)}", USAGE)
    if not root.is_dir():
        raise failure(f"{folder} is not a folder, and --from reads one", USAGE)
    redact = Redactor()
    marks = list(_marks(root, form))
    traces: dict[str, Trace] = {}
    rejected = others = 0
    for mark in track(marks, "read", console=err, transient=True, disable=not err.is_terminal):
        place = mark.relative_to(root).as_posix()
        try:
            trace = _read(form, root, mark, playbook, trace_tokens * CHARS_PER_TOKEN, redact)
        except (LineError, OSError) as error:
            rejected += 1
            err.print(f"{place}: {error}", markup=False, soft_wrap=True)
            continue
        others += trace is None
        if trace is not None:
            traces[trace.trace_id] = trace
    if others:
        remark(f"{others} of {len(marks)} files are not runs")
    if redact.counts:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(redact.counts.items()))
        remark(f"redacted before sending: {counts}")
    return list(traces.values()), rejected


def _marks(root: Path, form: TrajectoryFormat) -> Iterator[Path]:
    files = {path for pattern in form.marks for path in root.glob(pattern) if path.is_file()}
    return iter(sorted(files))


def _read(
    form: TrajectoryFormat,
    root: Path,
    mark: Path,
    playbook: str,
    trace_bytes: int,
    redact: Callable[[str], str],
) -> Trace | None:
    base = mark.parents[form.up - 1] if form.up else mark.parent
    beside = {path for pattern in form.beside for path in base.glob(pattern) if path.is_file()}
    files, home = {}, root.resolve()
    for path in sorted({mark, *beside}):
        name = path.relative_to(base).as_posix()
        if not path.resolve().is_relative_to(home):  # the folder may be another's
            raise LineError(f"{name} is a link out of the folder; copy what it leads to")
        files[name] = path.read_text("utf-8", errors="replace")
    try:
        run = form.read(files, mark.relative_to(base).as_posix())
    except LineError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a part of another shape
        raise LineError(f"not a run of {form.name}: {error}") from error
    if run is None:
        return None
    place = (mark if form.up == 0 else base).relative_to(root).as_posix()
    return trace_of(run, playbook, source=form.name, place=place, trace_bytes=trace_bytes, redact=redact)
