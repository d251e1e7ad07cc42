"""Who chooses batch sizes: the controller, unless somebody sets a size and no policy."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from combee.assembly.local.stack import StackOptions, child_environment
from combee.core.batching.sizing.policy import LARGEST_CHOICE
from combee.process.settings.loading import Settings, load_settings
from support.rows import each_row

ROOT = Path(__file__).parents[4]
DEFAULT = 40


def policy(settings: Settings) -> tuple[str, int]:
    return settings.sizing.batch_policy, settings.sizing.policy().start


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Read settings where no file lies."""
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.mark.usefixtures("in_process")
def test_by_default_the_controller_keeps_up_and_starts_at_40() -> None:
    settings = load_settings()
    assert policy(settings) == ("keep-up", DEFAULT)
    assert settings.batch.batch_size == DEFAULT
    assert settings.sizing.fixed_size is None


@pytest.mark.parametrize("size", [DEFAULT, 7])
@pytest.mark.parametrize("where", ["flag", "environment", "file"])
def test_a_batch_size_that_is_set_is_fixed_wherever_it_is_set(
    in_process: pytest.MonkeyPatch, where: str, size: int
) -> None:
    if where == "environment":
        in_process.setenv("COMBEE_BATCH_SIZE", str(size))
    elif where == "file":
        Path("combee.toml").write_text(f"batch_size = {size}\n")
    settings = load_settings(batch_size=size if where == "flag" else None)
    assert policy(settings) == ("configured", size)
    assert (settings.batch.batch_size, settings.sizing.fixed_size) == (size, size)


@pytest.mark.parametrize("kind", ["keep-up", "plateau", "configured"])
def test_a_policy_that_is_set_wins_and_the_size_is_its_start_value(
    in_process: pytest.MonkeyPatch, kind: str
) -> None:
    Path("combee.toml").write_text(f'batch_policy = "{kind}"\n')
    assert policy(load_settings()) == (kind, DEFAULT)
    in_process.setenv("COMBEE_BATCH_SIZE", "60")
    assert policy(load_settings()) == (kind, 60)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("keep-up", DEFAULT)),
        ({"batch_size": DEFAULT}, ("configured", DEFAULT)),
        ({"batch_size": 60, "batch_policy": "plateau"}, ("plateau", 60)),
    ],
    ids=["nothing", "a size", "both"],
)
def test_the_processes_of_a_stack_take_the_same_policy(
    in_process: pytest.MonkeyPatch, given: dict[str, object], expected: tuple[str, int]
) -> None:
    # They are told every setting, the defaults too, which must not look as if somebody had set them.
    options = StackOptions(settings=load_settings(**given), bootstrap_servers="b:1", folder=Path())
    for name, value in child_environment(options).items():
        if name.startswith("COMBEE_"):
            in_process.setenv(name, value)
    assert policy(load_settings()) == expected


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"batch_size": 600, "batch_policy": "keep-up"}, LARGEST_CHOICE),
        ({"batch_size": 600}, 600),
    ],
    ids=["a start value", "a fixed size"],
)
@pytest.mark.usefixtures("in_process")
def test_the_first_batch_is_no_larger_than_any_that_the_controller_may_choose(
    given: dict[str, object], size: int
) -> None:
    assert load_settings(**given).batch.batch_size == size


@pytest.mark.usefixtures("in_process")
def test_the_batch_size_of_a_stack_is_that_of_its_batches() -> None:
    # As a replay sets it: above every batch of the record, so that only the replay closes windows.
    settings = load_settings()
    larger = replace(settings, batch=settings.batch.model_copy(update={"batch_size": 101}))
    options = StackOptions(settings=larger, bootstrap_servers="b:1", folder=Path())
    assert child_environment(options)["COMBEE_BATCH_SIZE"] == "101"


@each_row("name", ["docker-compose.yml", "deploy/.env.example", "deploy/simulated.yml", "deploy/Dockerfile"])
def test_containers_leave_the_choice_to_the_controller(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert not [line for line in lines if re.match(r"[^#]*BATCH_SIZE *[:=] *[^\s,}]", line)]
