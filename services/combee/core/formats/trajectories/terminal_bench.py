"""Trials of Terminal-Bench's first runner (``tb run``, before Harbor): a folder for each trial.

``results.json``, ``agent-logs/episode-N/`` of the agent Terminus, ``panes/`` with the terminal's screens,
``commands.txt`` with the typed commands.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from combee.core.formats.intake import LineError
from combee.core.formats.trajectories.trajectory import (
    Files,
    Trajectory,
    TrajectoryFormat,
    json_object,
    verdict_text,
)
from combee.core.text.condensing import Step
from combee.core.text.shortening import cut

EPISODE = re.compile(r"agent-logs/episode-(\d+)/")
NO_FAILURE = {"unset", "none"}
"""Values of ``failure_mode`` that name no failure."""
PASSED = "passed"
TEST_BYTES = 6 * 1024


def read_trial(files: Files, mark: str) -> Trajectory | None:
    """Return the trajectory of a trial; None: ``mark`` is the result of a whole run."""
    result = json_object(files[mark], mark)
    if "trial_name" not in result:
        return None  # the result of a whole run
    steps = tuple(_episodes(files)) or tuple(_terminal(files))
    if not steps:
        raise LineError(
            "a trial without agent-logs/episode-N, panes or commands.txt: there is nothing to read"
        )
    solved = result.get("is_resolved")
    return Trajectory(
        task=str(result.get("instruction") or result.get("task_id") or ""),
        steps=steps,
        answer=next((step.text for step in reversed(steps) if step.who == "assistant"), ""),
        feedback=_feedback(result, files),
        success=solved if isinstance(solved, bool) else None,
        score=_score(result),
        metadata={"task_id": str(result.get("task_id") or "")},
    )


def _episodes(files: Files) -> Iterator[Step]:
    """Yield Terminus' prompts and answers; the first prompt is the task."""
    numbers = sorted({int(match[1]) for place in files if (match := EPISODE.match(place))})
    for number in numbers:
        folder = f"agent-logs/episode-{number}/"
        if number and (shown := files.get(folder + "prompt.txt")):
            yield Step("terminal", shown)
        answered = files.get(folder + "response.txt") or files.get(folder + "response.json")
        if answered:
            yield Step("assistant", answered)


def _terminal(files: Files) -> Iterator[Step]:
    """Yield the records of other agents: typed commands, and the final screen."""
    if typed := files.get("commands.txt", "").strip():
        yield Step("assistant", typed)
    if screen := files.get("panes/post-agent.txt", "").strip():
        yield Step("terminal", screen)


def _tests(result: Mapping[str, Any]) -> Mapping[str, str]:
    tests = result.get("parser_results")
    return tests if isinstance(tests, dict) else {}


def _score(result: Mapping[str, Any]) -> dict[str, float]:
    tests = _tests(result)
    return {"tests": sum(status == PASSED for status in tests.values()) / len(tests)} if tests else {}


def _feedback(result: Mapping[str, Any], files: Files) -> str:
    mode = str(result.get("failure_mode") or "unset")
    failed = [name for name, status in _tests(result).items() if status != PASSED]
    solved = result.get("is_resolved")
    return verdict_text(
        "" if solved is None else "The tests passed." if solved else "The tests failed.",
        "" if mode in NO_FAILURE else f"The run ended with {mode}.",
        f"Failed tests: {', '.join(failed)}." if failed else "",
        "" if solved else cut(files.get("panes/post-test.txt", ""), TEST_BYTES),
    )


TERMINAL_BENCH = TrajectoryFormat(
    name="terminal-bench",
    marks=("**/results.json",),
    up=1,
    beside=(
        *("agent-logs/episode-*/prompt.txt", "agent-logs/episode-*/response.*"),
        *("panes/post-agent.txt", "panes/post-test.txt", "commands.txt"),
    ),
    read=read_trial,
)
