"""Statistics of outcomes."""

from combee_schemas.outcome import Figures, OutcomeStatistics, VersionOutcomes


def by_version(*runs: tuple[int, int, int], since_ms: int = 1_000) -> OutcomeStatistics:
    """Return the statistics of versions from the successes and failures of each; a version is a millisecond later."""
    versions = (
        VersionOutcomes(
            version=version,
            figures=Figures(runs=right + wrong, successes=right, failures=wrong),
            last_at_ms=since_ms + version,
        )
        for version, right, wrong in runs
    )
    return OutcomeStatistics(line="a", versions=tuple(versions))
