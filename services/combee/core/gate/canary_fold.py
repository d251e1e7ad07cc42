"""The fold of a canary: outcomes, in offset order, become the results of its arms; pure.

A caller counts once, with its first scored run, so that a busy caller weighs no more than others, and counted scores
are independent.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field

from combee.core.evaluation.outcomes.fold import HORIZON
from combee.core.gate.betting import Bets
from combee.core.gate.canary import caller_at, in_share, version_for
from combee_schemas.canary import CanaryArm, CanaryCapital, CanaryStatistics, CanaryTerms
from combee_schemas.outcome import Outcome

SCORE = "score"
"""Name of the score that counts where success is unknown; a score without a name gets this one."""
MAX_CALLERS = 20_000
"""Maximum callers per canary, so that its statistics fit a record; others are turned away in both arms."""


@dataclass(slots=True)
class Arm:
    """The callers of one arm, with fields as in ``CanaryArm``."""

    callers: int = 0
    runs: int = 0
    unscored: int = 0
    counted: int = 0
    total: float = 0.0
    shares: float = 0.0
    share_squares: float = 0.0

    @property
    def mean(self) -> float:
        """The mean score of the counted callers."""
        return self.total / self.counted if self.counted else 0.0


@dataclass(slots=True, kw_only=True)
class Canary:
    """Mutable state of one canary."""

    playbook: str
    terms: CanaryTerms
    candidate: Arm = field(default_factory=Arm)
    control: Arm = field(default_factory=Arm)
    bets: Bets = field(default_factory=Bets)
    waiting: dict[int, int] = field(default_factory=dict)
    """Callers that are not counted yet, with the number of their runs."""
    counted: set[int] = field(default_factory=set)
    unproven: int = 0
    misplaced: int = 0
    turned_away: int = 0
    through: int = -1

    def take_run(self, caller: int, score: float | None) -> None:
        """Count a new run; ``score``: None while it is unscored."""
        arm, is_counted = self._arm(caller), caller in self.counted
        if not is_counted and caller not in self.waiting:
            if len(self.waiting) + len(self.counted) >= MAX_CALLERS:
                self.turned_away += 1
                return
            self.waiting[caller] = 0
            arm.callers += 1
        arm.runs += 1
        arm.unscored += 1
        if not is_counted:
            self.waiting[caller] += 1
        if score is not None:
            self.take_score(caller, score)

    def take_score(self, caller: int, score: float) -> None:
        """Count the score of a run that was unscored."""
        runs = self.waiting.pop(caller, None)
        if runs is None and caller not in self.counted:
            return  # the maximum number of callers is reached
        arm, terms = self._arm(caller), self.terms
        arm.unscored = max(0, arm.unscored - 1)  # a run of before these terms is none of these
        if runs is None:
            return
        unscored_share = 1 - 1 / runs
        self.counted.add(caller)
        arm.counted += 1
        arm.total += score
        arm.shares += unscored_share
        arm.share_squares += unscored_share**2
        self.bets.bet(score, is_candidate=arm is self.candidate, share=terms.share, margin=terms.margin)

    def _arm(self, caller: int) -> Arm:
        return self.candidate if in_share(caller, self.terms) else self.control

    def statistics(self, now_ms: int) -> CanaryStatistics:
        """Return the state as it is written."""
        return CanaryStatistics(
            playbook=self.playbook,
            terms=self.terms,
            candidate=CanaryArm(**asdict(self.candidate)),
            control=CanaryArm(**asdict(self.control)),
            capital=CanaryCapital(**asdict(self.bets)),
            waiting=tuple(self.waiting.items()),
            counted=tuple(sorted(self.counted)),
            unproven=self.unproven,
            misplaced=self.misplaced,
            turned_away=self.turned_away,
            through_offset=self.through,
            updated_at_ms=now_ms,
        )


def resumed(known: CanaryStatistics) -> Canary:
    """Return a canary's mutable state from its stored statistics."""
    return Canary(
        playbook=known.playbook,
        terms=known.terms,
        candidate=Arm(**dict(known.candidate)),
        control=Arm(**dict(known.control)),
        bets=Bets(**dict(known.capital)),
        waiting=dict(known.waiting),
        counted=set(known.counted),
        unproven=known.unproven,
        misplaced=known.misplaced,
        turned_away=known.turned_away,
        through=known.through_offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What outcomes say about one run: its first place and its first score count."""

    place: str = ""
    """Its caller's place in the canary; empty: none was given."""
    score: float | None = None


class CanaryFold:
    """The canaries of one partition's playbooks, and the last runs that outcomes name.

    As for ``outcomes.fold.Fold``: a worker that starts at ``start`` first reads the ``HORIZON`` records before it,
    which are remembered but not counted.
    """

    def __init__(
        self,
        terms_of: Callable[[str], CanaryTerms | None],
        known: Iterable[CanaryStatistics] = (),
        *,
        start: int = 0,
        horizon: int = HORIZON,
    ) -> None:
        self._terms_of = terms_of
        self._canaries = {statistics.playbook: resumed(statistics) for statistics in known}
        self._start = start
        self._horizon = horizon
        self._runs: OrderedDict[tuple[str, str], tuple[int, _Run]] = OrderedDict()
        """Runs with the offset of their last outcome, oldest first."""
        self._changed: set[str] = set()

    def add(self, offset: int, outcome: Outcome, *, is_proven: bool) -> None:
        """Fold in the outcome at an offset; the result of an outcome without a proven source is ignored."""
        while self._runs and next(iter(self._runs.values()))[0] < offset - self._horizon:
            self._runs.popitem(last=False)
        canary = self.get(outcome.playbook)
        if canary is None:
            return
        terms = canary.terms
        is_news = offset >= self._start and offset > canary.through
        if is_news:
            canary.through = offset
        place = _place(outcome, terms)
        is_misplaced = bool(place) and version_for(place, terms) != _version(outcome)
        if is_news and place and (is_misplaced or not is_proven):
            canary.misplaced += is_misplaced
            canary.unproven += not is_proven
            self._changed.add(canary.playbook)
        if is_proven:
            self._take_outcome(canary, offset, outcome, "" if is_misplaced else place, is_news=is_news)

    def _take_outcome(
        self, canary: Canary, offset: int, outcome: Outcome, place: str, *, is_news: bool
    ) -> None:
        key = canary.playbook, outcome.run_id
        _, before = self._runs.pop(key, (0, _Run()))
        after = _Run(
            place=before.place or place,
            score=_score(outcome) if before.score is None else before.score,
        )
        self._runs[key] = offset, after
        if not is_news or not after.place or after == before:
            return
        self._changed.add(canary.playbook)
        if not before.place:
            canary.take_run(caller_at(after.place), after.score)
        elif after.score is not None:
            canary.take_score(caller_at(after.place), after.score)

    def get(self, playbook: str) -> Canary | None:
        """Return a playbook's current canary; None: none is running."""
        terms = self._terms_of(playbook)
        if terms is None:
            return None
        known = self._canaries.get(playbook)
        if known is None or known.terms != terms:
            known = self._canaries[playbook] = Canary(playbook=playbook, terms=terms)
        return known

    def changed(self, now_ms: int) -> Iterator[CanaryStatistics]:
        """Yield the statistics that changed since the last call, in the order of their playbooks' names."""
        for playbook in sorted(self._changed):
            yield self._canaries[playbook].statistics(now_ms)
        self._changed.clear()


def _place(outcome: Outcome, terms: CanaryTerms) -> str:
    place = outcome.shown.canary if outcome.shown else ""
    return place if place.startswith(f"{terms.candidate}-") else ""


def _version(outcome: Outcome) -> int | None:
    return outcome.shown.version if outcome.shown else None


def _score(outcome: Outcome) -> float | None:
    """Return a run's score in [0, 1]; a value outside is ignored."""
    if outcome.success is not None:
        return float(outcome.success)
    score = outcome.score.get(SCORE)
    return score if score is not None and 0 <= score <= 1 else None
