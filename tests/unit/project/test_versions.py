"""The table of speed figures by version."""

from benchmarks.cluster import ROLES
from benchmarks.versions import kept, with_column


def row(benchmark: str, figure: str, median: str) -> dict[str, str]:
    return {"benchmark": benchmark, "figure": figure, "median": median}


def test_figures_are_told_apart_by_their_unit_and_those_of_services_are_added_up() -> None:
    rows = [
        row("overhead", "overhead, n = 40, L = 1 s", "1.1 × ideal"),
        row("overhead", "overhead, n = 40, L = 1 s", "1.2 × gather tree"),
        row("throughput", "through shuffle", "1,299.28 reflections/s"),
        *(row("idle", f"processor time per idle second: {role}", "7 ms") for role in ROLES),
    ]

    figures = kept(rows)

    assert figures["overhead, n = 40, L = 1 s, × ideal"] == "1.1"
    assert figures["through shuffle, reflections/s"] == "1299"
    assert figures["processor time per idle second, ms"] == str(7 * len(ROLES))
    assert figures["combee status, s"] == ""


def test_a_version_becomes_a_column_and_the_others_stay() -> None:
    first = with_column([], "0.1", {"a": "1", "gone": "2"})

    both = with_column(first, "now", {"a": "3", "new": "4"})

    assert both == [
        {"figure": "a", "0.1": "1", "now": "3"},
        {"figure": "new", "0.1": "", "now": "4"},
        {"figure": "gone", "0.1": "2", "now": ""},
    ]
    assert with_column(both, "now", {"a": "5"})[0] == {"figure": "a", "0.1": "1", "now": "5"}
