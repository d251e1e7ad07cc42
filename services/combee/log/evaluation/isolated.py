"""Users' code that may never end: a function runs in a thread, a pattern in a process of its own."""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

from combee.adapters.ports import PoisonError
from combee.core.evaluation.scoring import MAX_SEARCHED

PATTERN_S = 10.0
"""Maximum seconds to search for a pattern: an exponential one would take years."""
FOUND, MISSING = 0, 3
_SEARCH = f"""import json, re, sys
pattern, text = json.load(sys.stdin)
sys.exit({FOUND} if re.search(pattern, text) else {MISSING})"""


async def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of a blocking function; a cancelled wait leaves its thread behind.

    Nothing waits for that thread, not even the end of the process, for which ``asyncio.to_thread`` would wait.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def run() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:  # noqa: BLE001 - it is raised again where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="evaluation", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result


async def is_found(pattern: str, text: str) -> bool:
    """Return whether a pattern is in the beginning of a text.

    It runs in a process, because ``re`` blocks all threads while it searches.

    Raises
    ------
    PoisonError
        If the search takes too long.
    """
    search = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _SEARCH),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(PATTERN_S):
            await search.communicate(json.dumps([pattern, text[:MAX_SEARCHED]]).encode())
    except TimeoutError as error:
        raise PoisonError(
            f"the pattern {pattern[:80]!r} took longer than {PATTERN_S:g} s to search for: simplify it"
        ) from error
    finally:
        if search.returncode is None:
            search.kill()
            await search.wait()
    if search.returncode not in {FOUND, MISSING}:
        raise PoisonError(f"searching for the pattern {pattern[:80]!r} failed")
    return search.returncode == FOUND
