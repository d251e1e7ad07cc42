"""A run that is too long keeps what failed, how it began and how it ended."""

from hypothesis import given
from hypothesis import strategies as st

from combee.core.text.condensing import Step, condensed, excerpt, trajectory_text
from combee.core.text.shortening import size
from support.rows import each_row

CALM = [Step("tool", f"listing {number}: " + "all is well " * 20) for number in range(60)]


def test_a_run_that_fits_stays_as_it_is() -> None:
    assert condensed(CALM, 10**6) == trajectory_text(CALM)


def test_a_failure_in_the_middle_stays_with_what_led_to_it() -> None:
    steps = [
        *CALM[:30],
        Step("assistant", "make deploy"),
        Step("tool", "make: *** Error: no rule"),
        *CALM[30:],
    ]
    text = condensed(steps, 3_000)

    assert size(text) <= 3_000
    assert "assistant: make deploy\n\ntool: make: *** Error: no rule" in text
    assert "listing 0:" in text
    assert "listing 59:" in text
    assert "steps left out" in text


def test_of_many_failures_the_last_ones_stay() -> None:
    steps = [Step("tool", f"{number} ValueError: " + "y" * 300) for number in range(200)]
    text = condensed(steps, 4_000)

    assert "199 ValueError" in text
    assert "198 ValueError" in text
    assert size(text) <= 4_000


def test_what_agents_and_users_say_of_errors_is_no_failure() -> None:
    told = "I see a ValueError: there"

    assert [Step(who, told).failure is None for who in ("user", "assistant", "tool")] == [True, True, False]


def test_a_step_that_its_format_calls_failed_is_a_failure_whatever_it_says() -> None:
    assert Step("tool", "nope", has_failed=True).failure == 0


@each_row(
    "text",
    [
        "Traceback (most recent call last):",
        "KeyError: 'vat'",
        "bash: orders: command not found",
        "FAILED tests/test_a.py::test_b",
        "Exit code 1 (exit code: 1)",
        "cat: a: No such file or directory",
        "error: could not compile",
    ],
)
def test_programs_say_in_many_ways_that_something_went_wrong(text: str) -> None:
    assert Step("tool", text).failure is not None


def test_a_huge_output_keeps_its_failing_part() -> None:
    text = "begin " + "a" * 50_000 + "\nKeyError: 'vat'\n" + "b" * 50_000 + " end"
    short = excerpt(Step("tool", text), 2_000)

    assert size(short) <= 2_000
    assert short.startswith("tool: begin")
    assert short.endswith("end")
    assert "KeyError: 'vat'" in short
    assert "bytes cut" in short


@given(
    st.lists(
        st.builds(
            Step,
            st.sampled_from(["tool", "assistant", "user"]),
            st.text(max_size=400) | st.just("ü" * 3_000) | st.just("x" * 2_000 + "Error: y" + "z" * 2_000),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.integers(400, 6_000),
)
def test_a_budget_holds_whatever_the_steps_are(steps: list[Step], most_bytes: int) -> None:
    assert size(condensed(steps, most_bytes)) <= most_bytes
