"""Runs of other programs become traces: task, steps, answer, verdict, whatever the format."""

import json
from pathlib import Path
from typing import Any

import pytest

from combee.cli.learn.trajectories import FORMATS
from combee.core.formats.intake import LineError
from combee.core.formats.trajectories.trajectory import Trajectory, trace_of
from combee.core.text.condensing import Step
from support.rows import each_row

SAMPLES = Path(__file__).parents[3] / "golden" / "trajectories"


def files(root: Path, *patterns: str) -> dict[str, str]:
    """Return the samples below a folder, as the command line finds them."""
    found = [path for pattern in patterns for path in root.glob(pattern)]
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in found}


def read(name: str, folder: str, mark: str) -> Trajectory | None:
    form = FORMATS[name]
    base = SAMPLES / name / folder
    return form.read(files(base, mark, *form.beside), mark)


def run(name: str, folder: str, mark: str) -> Trajectory:
    found = read(name, folder, mark)
    assert found is not None
    return found


def said(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [(step.who, step.text) for step in trajectory.steps]


# ---- Harbor, ATIF


def test_a_trial_of_harbor_has_its_task_steps_reward_and_agent() -> None:
    trial = run("harbor", "2026-10-01__10-00-00/sum-file__Ab12Cd3", "result.json")

    assert trial.task.startswith("Write the sum of the numbers")
    assert [step.who for step in trial.steps] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert trial.steps[1].text == (
        "The format is unknown.\nI look at the file first.\nbash_command: head -3 /app/numbers.txt\n"
    )
    assert trial.answer == "The sum is written."
    assert (trial.success, trial.score, trial.feedback) == (True, {"reward": 1.0}, "The tests passed.")
    assert trial.agent == "terminus-2 2.0.0"
    assert trial.metadata == {"gen_ai.request.model": "example/model-1", "task_id": "sum-file"}


def test_a_failed_trial_goes_on_in_its_continuation_and_says_what_its_tests_said() -> None:
    trial = run("harbor", "2026-10-01__10-00-00/serve-site__Ef45Gh6", "result.json")

    assert [step.who for step in trial.steps] == ["user", "assistant", "tool", "assistant"]
    assert trial.steps[2].failure is not None
    assert (trial.success, trial.score) == (False, {"reward": 0.0})
    assert trial.feedback == (
        "The tests failed.\nAgentTimeoutError: the agent ran for 900 s\n"
        "FAILED test_site.py::test_index - assert 'old' == 'new'\n1 failed in 0.10s"
    )


def test_the_summary_of_a_job_or_of_a_run_is_no_run() -> None:
    assert read("harbor", "2026-10-01__10-00-00", "result.json") is None
    assert read("terminal-bench", "2025-09-05__16-26-44", "results.json") is None
    assert read("atif", "", "notes.json") is None


def test_a_trial_whose_agent_writes_no_atif_says_so() -> None:
    with pytest.raises(LineError, match=r"without agent/trajectory\.json"):
        FORMATS["harbor"].read({"result.json": '{"trial_name": "t"}'}, "result.json")


def test_a_trial_that_was_never_judged_has_neither_failed_nor_succeeded() -> None:
    place = "2026-10-01__10-00-00/sum-file__Ab12Cd3"
    found = files(SAMPLES / "harbor" / place, "result.json", "agent/*.json")
    result = json.loads(found["result.json"])
    result["verifier_result"] = None
    trial = FORMATS["harbor"].read({**found, "result.json": json.dumps(result)}, "result.json")

    assert trial is not None
    assert (trial.success, trial.score, trial.feedback) == (None, {}, "")


def test_rewards_of_a_trial_in_steps_are_those_of_its_last_step() -> None:
    place = "2026-10-01__10-00-00/sum-file__Ab12Cd3"
    found = files(SAMPLES / "harbor" / place, "result.json", "agent/*.json")
    steps = [{"verifier_result": {"rewards": {"reward": value}}} for value in (1.0, 0.5)]
    result = {**json.loads(found["result.json"]), "verifier_result": None, "step_results": steps}
    parts = {
        "result.json": json.dumps(result),
        "steps/1/agent/trajectory.json": found["agent/trajectory.json"],
        "steps/2/agent/trajectory.json": found["agent/trajectory.json"],
    }
    trial = FORMATS["harbor"].read(parts, "result.json")

    assert trial is not None
    assert (trial.success, trial.score, len(trial.steps)) == (False, {"reward": 0.5}, 12)


def test_a_file_of_atif_needs_no_trial_around_it() -> None:
    trajectory = run("atif", "", "run.json")

    assert (trajectory.answer, trajectory.success) == ("The sum is written.", None)


# ---- Terminal-Bench before Harbor


def test_a_trial_of_terminal_bench_is_what_its_agent_was_shown_and_answered() -> None:
    trial = run(
        "terminal-bench",
        "2025-09-05__16-26-44/run-script/run-script.1-of-1.2025-09-05__16-26-44",
        "results.json",
    )

    assert trial.task == "Make /app/run.sh executable and run it once."
    assert [step.who for step in trial.steps] == ["assistant", "terminal", "assistant"]
    assert trial.steps[1].failure is not None
    assert (trial.success, trial.score) == (False, {"tests": 0.5})
    assert trial.feedback == (
        "The tests failed.\nFailed tests: test_ran_once.\n"
        "FAILED tests/test_outputs.py::test_ran_once - the log is empty"
    )


def test_of_other_agents_the_terminal_tells() -> None:
    trial = run(
        "terminal-bench",
        "2025-09-05__16-26-44/run-script/run-script.2-of-2.2025-09-05__16-26-44",
        "results.json",
    )

    assert [step.who for step in trial.steps] == ["assistant", "terminal"]
    assert (trial.success, trial.score, trial.feedback) == (True, {"tests": 1.0}, "The tests passed.")


@each_row(("mode", "told"), [("unset", False), ("none", False), ("agent_timeout", True)])
def test_how_a_run_of_terminal_bench_broke_off_is_feedback(mode: str, *, told: bool) -> None:
    result = {"trial_name": "t", "task_id": "t", "instruction": "Do it.", "failure_mode": mode}
    trial = FORMATS["terminal-bench"].read(
        {"results.json": json.dumps(result), "commands.txt": "ls"}, "results.json"
    )

    assert trial is not None
    assert (trial.feedback == f"The run ended with {mode}.") is told
    assert trial.success is None


def test_a_trial_with_nothing_in_it_is_rejected() -> None:
    with pytest.raises(LineError, match="nothing to read"):
        FORMATS["terminal-bench"].read({"results.json": '{"trial_name": "t"}'}, "results.json")


# ---- AppWorld


def test_a_task_of_appworld_is_the_generator_s_last_conversation() -> None:
    task = run("appworld", "ACE_example/tasks/aa1b2c3_1", "logs/environment_io.md")

    assert task.task == "How many songs are in my library?"
    assert said(task) == [
        ("assistant", "I list the songs.\n```python\nprint(len(apis.music.library()))\n```"),
        ("environment", "Output:\n```\n20\n```"),
        ("assistant", "```python\napis.supervisor.complete_task(answer=20)\n```"),
        ("environment", "Execution successful."),
    ]
    assert (task.success, task.score) == (False, {"tests": 0.5})
    assert task.feedback.startswith("1 of 2 tests failed.\n>> Failed Requirement\nassert answers match")
    assert "no model changes" not in task.feedback


def test_without_recorded_calls_a_task_is_what_was_executed_and_its_log_says_what_was_asked() -> None:
    task = run("appworld", "ACE_example/tasks/aa1b2c3_2", "logs/environment_io.md")

    assert (
        task.task == "Delete every playlist of mine that has no song in it, and tell me how many there were."
    )
    assert [step.who for step in task.steps] == ["assistant", "environment"]
    assert task.steps[1].failure is not None
    assert (task.success, task.score, task.feedback) == (None, {}, "")


def test_a_task_that_left_nothing_is_rejected() -> None:
    with pytest.raises(LineError, match="tells of a run"):
        FORMATS["appworld"].read({"logs/environment_io.md": ""}, "logs/environment_io.md")


# ---- sessions of coding assistants


def test_a_session_of_claude_code_is_what_user_assistant_and_tools_said() -> None:
    session = run("claude-code", "-home-ann-shop", "3f6f1c1e-0000-4000-8000-000000000001.jsonl")

    assert session.task == "The tests of the cart fail since yesterday. Fix them."
    assert [step.who for step in session.steps] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert session.steps[3].has_failed
    assert "pytest -q tests/cart" in session.steps[2].text
    assert session.answer == "I restored the column; the tests pass."
    assert session.agent == "claude-code 2.1.37"
    assert session.metadata == {"gen_ai.request.model": "claude-example"}
    assert session.success is None


def test_a_session_in_which_nobody_asked_is_no_run() -> None:
    assert read("claude-code", "-home-ann-shop", "empty.jsonl") is None


def test_a_session_of_codex_is_what_user_assistant_and_tools_said() -> None:
    session = run("codex", "2026/10/01", "rollout-2026-10-01T10-00-00-019a2d7a.jsonl")

    assert session.task == "List the open orders."
    assert [step.who for step in session.steps] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert "orders --open" in session.steps[1].text
    assert (session.steps[2].text, session.steps[2].has_failed) == ("bash: orders: command not found\n", True)
    assert session.steps[4] == Step("tool", "Success.")
    assert (session.answer, session.agent) == ("There is no command for it.", "codex 0.65.0")


def test_the_earlier_sessions_of_codex_are_read_too() -> None:
    session = run("codex", "2025/06/01", "rollout-2025-06-01-old.jsonl")

    assert said(session) == [
        ("user", "Say hello."),
        ("assistant", 'shell ["echo", "hello"]'),
        ("tool", "hello"),
        ("assistant", "hello"),
    ]


# ---- the trace


def trace(trajectory: Trajectory, **options: Any) -> Any:
    settings: dict[str, Any] = {"source": "atif", "place": "a/b.json", "trace_bytes": 8_000, "redact": str}
    return trace_of(trajectory, "p", **settings | options)


def test_a_run_becomes_a_trace_that_says_where_it_comes_from() -> None:
    made = trace(run("harbor", "2026-10-01__10-00-00/serve-site__Ef45Gh6", "result.json"), source="harbor")

    assert (made.source.name, made.metadata["path"], made.agent) == ("harbor", "a/b.json", "terminus-2 2.0.0")
    assert (made.success, made.score, made.original_bytes) == (False, {"reward": 0.0}, None)
    assert "assistant: I start a server." in made.trajectory


def test_the_same_run_has_the_same_id_wherever_it_lies_and_another_run_another() -> None:
    one, other = Trajectory(task="t", steps=(Step("a", "x"),)), Trajectory(task="t", steps=(Step("a", "y"),))

    assert trace(one).trace_id == trace(one, place="elsewhere").trace_id
    assert trace(one).trace_id != trace(other).trace_id


def test_a_long_run_fits_its_budget_with_all_its_texts() -> None:
    steps = tuple(Step("tool", f"{number} " + "x" * 500) for number in range(500))
    made = trace(Trajectory(task="t" * 9_000, steps=steps, answer="a" * 9_000, feedback="f" * 9_000))
    texts = (made.task, made.trajectory, made.answer, made.feedback)

    assert sum(map(len, texts)) <= 8_000
    assert made.original_bytes > 250_000


def test_every_text_is_redacted_before_it_is_cut() -> None:
    steps = (Step("tool", "x" * 9_000 + " secret"), Step("tool", "secret"))
    made = trace(
        Trajectory(task="secret", steps=steps, answer="secret", feedback="secret"),
        place="secret",
        redact=lambda text: text.replace("secret", "***"),
    )

    assert "secret" not in made.model_dump_json()
    assert made.task == "***"
