"""Whether a process stayed flat: memory and open descriptors over a soak."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

FIFTHS = 5
RSS_RATIO = 1.2
DESCRIPTORS_MORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one process held at one moment of the soak."""

    at_s: float
    rss_bytes: int
    descriptors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatness:
    """Medians of the second and the last fifth of a soak, of one process."""

    rss_early_bytes: float
    rss_late_bytes: float
    descriptors_early: float
    descriptors_late: float

    @property
    def flat(self) -> bool:
        """Whether neither memory nor descriptors grew beyond the bounds."""
        return (
            self.rss_late_bytes <= RSS_RATIO * self.rss_early_bytes
            and self.descriptors_late <= self.descriptors_early + DESCRIPTORS_MORE
        )


def sampled(pid: int, at_s: float) -> Sample | None:
    """Look at one process; nothing when it has ended."""
    try:
        process = psutil.Process(pid)
        return Sample(
            at_s=at_s,
            rss_bytes=process.memory_info().rss,
            descriptors=process.num_fds(),
        )
    except psutil.NoSuchProcess:
        return None


def flatness(samples: Sequence[Sample], soak_s: float) -> Flatness | None:
    """Compare the last fifth with the second; nothing without samples of both."""
    fifth_s = soak_s / FIFTHS
    early = [s for s in samples if fifth_s <= s.at_s < 2 * fifth_s]
    late = [s for s in samples if s.at_s >= soak_s - fifth_s]
    if not early or not late:
        return None
    return Flatness(
        rss_early_bytes=statistics.median(s.rss_bytes for s in early),
        rss_late_bytes=statistics.median(s.rss_bytes for s in late),
        descriptors_early=statistics.median(s.descriptors for s in early),
        descriptors_late=statistics.median(s.descriptors for s in late),
    )
