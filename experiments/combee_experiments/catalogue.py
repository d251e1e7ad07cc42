"""The experiments there are: an entry for each folder whose ``experiment`` module is a ``run.Experiment``."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from combee_experiments.running.run import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One experiment of the catalogue."""

    name: str
    about: str
    module: str

    def load(self) -> Experiment:
        """Return the experiment."""
        return cast("Experiment", import_module(f"combee_experiments.{self.module}.experiment"))


_LISTED = (
    Listed(
        name="overload",
        about="naive batch sizes against Combee: entries, lessons, accuracy, retention",
        module="overload",
    ),
    Listed(
        name="coverage",
        about="a model that misreports what it overlooked: lessons kept, what is verified, what the check costs",
        module="coverage",
    ),
    Listed(
        name="speed",
        about="sequential, naive and Combee, whole iterations: wall time, model calls, tokens, cost",
        module="speed",
    ),
    Listed(
        name="shuffle",
        about="copies, shuffling, distinct groups, and how many groups",
        module="shuffling",
    ),
    Listed(
        name="copies",
        about="batches of 4 to 40 with 1 to 4 copies: fewer copies than groups, as many, or one call",
        module="copies",
    ),
    Listed(
        name="price",
        about="what curators' calls cost for each lesson kept, next to ACE's and GEPA's releases",
        module="price",
    ),
    Listed(
        name="scale",
        about="one batch of 4 to 10,000: two fixed levels against the adaptive tree",
        module="scale",
    ),
    Listed(
        name="baselines",
        about="Top-K, Summarization and retrieval against Combee: lessons, accuracy, calls, tokens, prompt length",
        module="baselines",
    ),
    Listed(
        name="async",
        about="synchronous against overlapping iterations under heavy-tailed agents and models",
        module="asynchronous",
    ),
    Listed(
        name="arrivals",
        about="batch-size policies at 3 to 10,000 reflections an hour: lessons, staleness, calls",
        module="arrivals",
    ),
    Listed(
        name="stragglers",
        about="combining without late groups, and slow calls made again: times of a batch, lessons, calls",
        module="stragglers",
    ),
    Listed(
        name="controller",
        about="a sweep of batch sizes, its Pareto front, and where the controller's choice lies",
        module="controller",
    ),
    Listed(
        name="probation",
        about="entries shown only when several reflections support them: lessons, rare ones, invented ones",
        module="probation",
    ),
    Listed(
        name="canary",
        about="simulated decisions of a canary: wrong ones, the callers and runs that they take, agents exposed",
        module="canary",
    ),
    Listed(
        name="attacks",
        about="30 % malicious producers, eleven attacks, each protection off and on: what production shows",
        module="attacks",
    ),
    Listed(
        name="robustness",
        about="every arm under four counting rules, and with a stand-in that rewords, invents and contradicts",
        module="robustness",
    ),
)
CATALOGUE: Mapping[str, Listed] = {one.name: one for one in _LISTED}
