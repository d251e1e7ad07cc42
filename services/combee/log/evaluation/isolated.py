"""Work of others that may never end: a user's function in a thread, a user's pattern in a process of its own."""

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
"""A pattern is looked for so long: an exponential one would take years."""
FOUND, MISSING = 0, 3
_SEARCH = f"""import json, re, sys
pattern, text = json.load(sys.stdin)
sys.exit({FOUND} if re.search(pattern, text) else {MISSING})"""


async def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """Return what a blocking function returns; whoever gives up waiting leaves its thread behind.

    Nothing waits for that thread, not even the end of the process: ``asyncio.to_thread`` would.
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
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="evaluation", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result


async def is_found(pattern: str, text: str) -> bool:
    """Return whether a pattern is in the beginning of a text.

    A thread would not do: ``re`` lets no other run while it searches.

    Raises
    ------
    PoisonError
        If looking for it takes too long.
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
            f"the pattern {pattern[:80]!r} was not looked for to the end in {PATTERN_S:g} s: write it simpler"
        ) from error
    finally:
        if search.returncode is None:
            search.kill()
            await search.wait()
    if search.returncode not in {FOUND, MISSING}:
        raise PoisonError(f"looking for the pattern {pattern[:80]!r} failed")
    return search.returncode == FOUND
