"""The criteria, tables and panels of ``coverage``, for one set of data; the criteria stood before the first run."""

from collections.abc import Mapping

from combee_experiments.data.samples import Kind

LESSONS: Mapping[float, Mapping[Kind, float]] = {
    0.0: {"formula": 49, "finer": 100},
    0.1: {"formula": 49, "finer": 100},
    0.3: {"formula": 48, "finer": 90},
}
"""Rate at which the checker errs → minimum lessons kept, in every way of overload, verbatim and paraphrased."""
VERIFIED: Mapping[float, float] = {0.0: 0.03, 0.1: 0.03, 0.3: 0.10}
"""Rate at which the checker errs → maximum distance of the verified share from the truth."""
ENTRIES = 1.2
"""Maximum entries a lesson where the merger makes no mistake, in free wordings, with embeddings or the check call."""
ENTRIES_OVERLOADED = 1.6
CHECK = 0.06
"""Maximum share of a batch's tokens that the check takes."""
CHECK_AND_AGAIN = 0.15
"""The same, with what is carried and asked again."""
