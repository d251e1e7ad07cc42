"""How long a pause may last, and when it holds."""

import pytest

from combee.core.commands import RefusedError, pause, resume
from combee.core.names.tenants import Tenants
from combee.core.playbook.executing import after_command
from combee.core.playbook.pausing import LONGEST_MS, ends_soon, latest_end, order_of, pause_of
from combee.core.playbook.side_by_side import today_of
from combee.core.playbook.spend import UNCAPPED, LineSpend
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import PauseOrder, Playbook, Spend
from combee_schemas.topics import FOR_EVER

NOW = 20_000 * DAY_MS
WEEK, MONTH = 7 * DAY_MS, 30 * DAY_MS


def order(until_ms: int, *, by_retention: bool = False, since_ms: int = NOW) -> PauseOrder:
    return PauseOrder(since_ms=since_ms, until_ms=until_ms, by_retention=by_retention, issued_by="user:me")


@pytest.mark.parametrize(
    ("waiting", "end"),
    [
        ([(None, WEEK), (None, MONTH)], NOW + 6 * DAY_MS),
        ([(NOW - 2 * DAY_MS, WEEK), (None, MONTH)], NOW + 4 * DAY_MS),
        ([(None, MONTH), (NOW - 2 * WEEK, MONTH)], NOW - 2 * WEEK + MONTH - MONTH // 7),
        ([(NOW + WEEK, WEEK)], NOW + 6 * DAY_MS),
        ([(NOW - WEEK, FOR_EVER)], NOW + LONGEST_MS),
    ],
)
def test_a_pause_ends_while_a_seventh_of_the_retention_of_what_waits_is_left(
    waiting: list[tuple[int | None, int]], end: int
) -> None:
    assert latest_end(waiting, NOW) == end


def test_a_line_is_paused_by_its_own_order_or_its_playbooks_until_its_end() -> None:
    own, playbooks = order(NOW + 10), order(NOW + 20)
    assert order_of([own, playbooks], NOW) == playbooks
    assert order_of([own, None], NOW + 9) == own
    assert order_of([own, None], NOW + 10) is None


def test_only_an_end_set_by_retention_is_warned_of_a_day_ahead() -> None:
    assert not ends_soon(order(NOW + 6 * DAY_MS), NOW + 6 * DAY_MS - 1)
    assert not ends_soon(order(NOW + 6 * DAY_MS, by_retention=True), NOW + 5 * DAY_MS - 1)
    assert ends_soon(order(NOW + 6 * DAY_MS, by_retention=True), NOW + 5 * DAY_MS)
    assert ends_soon(order(NOW + 60, by_retention=True), NOW + 30)


def test_a_branch_shows_its_playbooks_pause_and_what_ends_it() -> None:
    lines = {
        name: LineSpend(spend=Spend(), in_flight=0, batch_size=5, paused=paused)
        for name, paused in (("a", order(NOW + 10, by_retention=True)), ("a@b", None))
    }
    paused = today_of("a@b", lines, UNCAPPED, Tenants({}), NOW).paused
    assert paused == pause_of({"a": order(NOW + 10, by_retention=True)}, NOW)
    assert paused is not None
    assert "would expire" in paused.reason
    assert paused.remedy == "'combee playbook resume a'"


# ---- commands


def playbook(paused: PauseOrder | None = None, version: int = 3) -> Playbook:
    return Playbook(name="a", version=version, paused=paused)


def test_a_pause_without_an_end_lasts_as_long_as_it_may_and_a_longer_one_is_shortened() -> None:
    latest = NOW + 6 * DAY_MS
    for until_ms, expected in (
        (None, (latest, True)),
        (NOW + 5, (NOW + 5, False)),
        (latest + 5, (latest, True)),
    ):
        command = pause(playbook(), until_ms, latest, NOW, None)
        assert command is not None
        assert (command.until_ms, command.by_retention) == expected


@pytest.mark.parametrize(
    ("current", "until_ms", "latest_ms", "reason"),
    [
        (playbook(version=0), None, NOW + 5, "absent"),
        (playbook(), NOW, NOW + 5, "invalid"),
        (playbook(), None, NOW, "conflict"),
    ],
)
def test_an_impossible_pause_is_refused(
    current: Playbook, until_ms: int | None, latest_ms: int, reason: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        pause(current, until_ms, latest_ms, NOW, None)
    assert refused.value.reason == reason


def test_there_is_nothing_to_do_about_what_is_paused_or_learns_already() -> None:
    assert pause(playbook(order(NOW + 9)), None, NOW + 50, NOW, None) is None
    assert pause(playbook(order(NOW + 9)), NOW + 20, NOW + 50, NOW, None) is not None
    assert resume(playbook(), NOW, None) is None
    assert resume(playbook(order(NOW)), NOW, None) is None


def test_a_pause_and_its_end_are_versions_that_say_the_same() -> None:
    before = playbook()
    asked = pause(before, NOW + 50, NOW + 90, NOW, None)
    assert asked is not None
    paused = after_command(before, asked, 1, target=None, budget_tokens=100, now_ms=NOW)
    assert (paused.version, paused.origin, paused.changes) == (4, "pause", ())
    assert paused.paused is not None
    longer = pause(paused, NOW + 70, NOW + 90, NOW + 10, None)
    assert longer is not None
    again = after_command(paused, longer, 2, target=None, budget_tokens=100, now_ms=NOW + 10)
    assert again.paused == PauseOrder(since_ms=NOW, until_ms=NOW + 70)
    back = resume(again, NOW + 20, None)
    assert back is not None
    learns = after_command(again, back, 3, target=None, budget_tokens=100, now_ms=NOW + 20)
    assert learns.paused is None
    assert learns.entries == before.entries
