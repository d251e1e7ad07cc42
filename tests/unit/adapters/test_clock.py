"""Times as people read them."""

from combee.adapters.clock import moment


def test_a_time_beyond_the_calendar_is_the_end_of_it() -> None:
    assert moment(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert moment(2**50) == moment(2**64) == "9999-12-31 23:59:59"
