"""Runs of callers in a canary, and the scorer that tells of them."""

from collections.abc import Iterable
from random import Random

from combee.core.gate.canary import place_of, version_for
from combee.core.names.sources import Signer
from combee_schemas import topics
from combee_schemas.base import Shown, Source
from combee_schemas.canary import CanaryTerms
from combee_schemas.outcome import Outcome
from combee_schemas.records import Outgoing
from support.ledger import NAME

SCORER = Signer(name="scorer", secret=b"a secret of the scorer, 32 characters")
CALLERS = 150


def of_callers(
    terms: CanaryTerms, candidate: float, control: float, *, source: str = SCORER.name
) -> list[Outcome]:
    """Return a run of each caller, as a reader in the canary tells of it; so often it succeeds in each arm."""
    rng, made = Random(3), []
    for number in range(CALLERS):
        place = place_of(NAME, terms, f"agent-{number}")
        version = version_for(place, terms)
        success = rng.random() < (candidate if version == terms.candidate else control)
        shown = Shown(version=version, canary=place)
        made.append(
            Outcome(
                run_id=f"r-{number}", playbook=NAME, shown=shown, success=success, source=Source(name=source)
            )
        )
    return made


def signed(said: Iterable[Outcome]) -> list[Outgoing]:
    """Return them as the scorer writes them: what it declares as its own has a proof."""
    return [SCORER.signed(topics.OUTCOMES.record(each), each.source) for each in said]
