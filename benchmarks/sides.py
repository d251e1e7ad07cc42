"""Two commits side by side: each with its own code, both with this interpreter and its packages."""

import asyncio
import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.ports import FatalError
from combee.process.settings.loading import environment

ROOT = Path(__file__).parents[1]
FOREIGN = ("COMBEE_", "OPENAI_", "PYTHON")
"""Variables of the shell that would decide how a side runs."""
FILES = (
    "print(json.dumps([one.__file__ for name, one in sys.modules.items() if name.split('.')[0] in {names}]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A checked-out commit."""

    name: str
    command: tuple[str, ...]
    """Its command line: its own entry point, never the installed script."""
    environment: Mapping[str, str]
    """In which its packages come before any installed ones."""


async def side(name: str, root: Path) -> Side:
    """Return the commit that is checked out at ``root``.

    Raises
    ------
    FatalError
        If other code than its own would run.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    packages = [
        root / package for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ]
    module, _, function = project["project"]["scripts"]["combee"].partition(":")
    start = f"import sys; from {module} import {function} as main"
    kept = {key: value for key, value in environment().items() if not key.startswith(FOREIGN)}
    made = Side(
        name=name,
        command=(sys.executable, "-c", f"{start}; sys.argv[0] = 'combee'; sys.exit(main())"),
        environment=kept | {"PYTHONPATH": ":".join(str(package.parent) for package in packages)},
    )
    names = {package.name for package in packages}
    ask = f"{start}; import json, {', '.join(sorted(names))}; {FILES.format(names=names)}"
    files = json.loads(await output(sys.executable, "-c", ask, env=made.environment))
    strange = foreign(files, root)
    if strange or len(files) < len(names):
        raise FatalError(
            f"{name} would run code that is not its own: {', '.join(strange) or 'none of it loads'}"
        )
    return made


def foreign(files: Sequence[str | None], root: Path) -> list[str]:
    """Return those of the loaded files that do not lie below ``root``."""
    return [file for file in files if file and not Path(file).resolve().is_relative_to(root.resolve())]


async def output(*command: str, env: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Return what a command prints.

    Raises
    ------
    FatalError
        If it fails; the message ends with what it said.
    """
    running = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=folder or tempfile.gettempdir(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        printed, said = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    if running.returncode:
        raise FatalError(f"{' '.join(command[-6:])} failed:\n{said.decode(errors='replace')[-2000:]}")
    return printed.decode()


async def default_base() -> str:
    """Return the last commit before what stands here: HEAD beneath changed files, else the one before it."""
    return "HEAD" if await _git("status", "--porcelain", "--untracked-files=no") else "HEAD~1"


@asynccontextmanager
async def checked_out(commit: str) -> AsyncIterator[Side]:
    """Check a commit out into a temporary worktree while the context is open."""
    named = await _git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}")
    folder = Path(tempfile.mkdtemp(prefix="combee-base-"))
    try:
        await _git("worktree", "add", "--detach", str(folder), named)
        yield await side(named, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        await _git("worktree", "prune")


async def _git(*arguments: str) -> str:
    return (await output("git", *arguments, folder=ROOT)).strip()
