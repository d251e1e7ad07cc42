"""When a process of the soak counts as flat."""

from support.faults.soak import Sample, flatness
from support.rows import each_row

MIB = 1 << 20


def samples(rss_mib: list[float], descriptors: list[int]) -> list[Sample]:
    return [
        Sample(at_s=10.0 * n, rss_bytes=int(rss * MIB), descriptors=count)
        for n, (rss, count) in enumerate(zip(rss_mib, descriptors, strict=True))
    ]


@each_row(
    ("rss_mib", "descriptors", "flat"),
    [
        ([50, 100, 100, 110, 119], [20, 30, 30, 30, 38], True),
        ([50, 100, 100, 110, 121], [20, 30, 30, 30, 30], False),
        ([50, 100, 100, 100, 100], [20, 30, 30, 30, 39], False),
    ],
)
def test_the_last_fifth_is_held_against_the_second(
    rss_mib: list[float], descriptors: list[int], *, flat: bool
) -> None:
    found = flatness(samples(rss_mib, descriptors), 50.0)
    assert found is not None
    assert found.flat == flat


def test_nothing_is_said_of_a_process_that_was_not_seen_in_both() -> None:
    assert flatness(samples([1, 1, 1], [1, 1, 1]), 50.0) is None
