"""``probation``: agents are shown an entry only when m reflections support it, with and without invented lessons.

The criteria, written before the first run, for m = 2 and m = 3, on the mean over the seeds:

1. Of the lessons that at least m reflections teach, at least 95 % are shown in the end, in every mode. Those that
   fewer teach are *rare*, and reported apart.
2. Of invented lessons that are not correlated at most one is shown in the end.
3. Correlated ones are expected to pass: reported, not judged.

Added with the stand-in's mode: where a lesson is said in several wordings, 1. is judged apart. Added after the first
run, because the stand-in's scan loses reflections whatever becomes of entries: the share of the lessons for which m
reflections got through the scan.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from combee.core.batching.limits import PRODUCT
from combee_experiments.arms.arms import ADAPTIVE, Arm
from combee_experiments.arms.learning import Learnt, learn
from combee_experiments.arms.material import reflections
from combee_experiments.data.samples import Data
from combee_experiments.probation.report import CORRELATED, INVENTED, OFF, PARAPHRASED, TRUE, report_on
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.lessons import NEEDED, Lessons, lessons_of
from combee_schemas.plan import Probation
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Known, Operation
from combee_sim.family.falsehoods import is_invented
from combee_sim.modes import NO_MODES, Modes, parse_modes

BATCH_SIZE = 20
MODES: Mapping[str, Modes] = {
    TRUE: NO_MODES,
    INVENTED: parse_modes(["invented"]),
    CORRELATED: parse_modes(["correlated"]),
    PARAPHRASED: parse_modes(["paraphrase"]),
}
STRENGTHS = (2, 3)
RARE = 5
"""Every so manieth lesson is taught by one reflection alone."""


def on_probation(reflections: int) -> Arm:
    """Return the product with entries on probation until so many reflections support them."""
    policy = PRODUCT.model_copy(update={"probation": Probation(reflections=reflections)})
    return replace(ADAPTIVE, name=f"m = {reflections}", policy=policy)


ARMS: Mapping[str, Arm] = {OFF: ADAPTIVE, **{arm.name: arm for arm in map(on_probation, STRENGTHS)}}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every mode with probation off and with two strengths of it."""
    for data in setup.data:
        for mode in MODES:
            for seed in setup.seeds:
                for arm in ARMS:
                    yield Cell.of(arm, seed, data=data.name, mode=mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """The reflections of a run, and how many of them teach each lesson."""

    reflections: tuple[Reflection, ...]
    times: Mapping[str, int]

    def lessons(self, least: int, most: int | None = None) -> frozenset[str]:
        """Return the lessons that so many reflections teach."""
        return frozenset(
            name for name, times in self.times.items() if least <= times and (most is None or times <= most)
        )


def taught(setup: Setup, data: Data, seed: int) -> Taught:
    """Return the reflections, of which some lessons have one alone and some state what is not true."""
    lessons = lessons_of(data)
    needed = {sample.trace_id: NEEDED[data.kind](sample, data.knowledge) for sample in data.train}
    rare = frozenset(sorted(lessons.names)[::RARE])
    made, seen = list[Reflection](), Counter[str]()
    for reflection in reflections(setup, data, seed):
        names = needed[str(reflection.trace_id)]
        if not any(name in rare and seen[name] for name in names):
            made.append(reflection)
            seen.update(names)
    times = Counter(
        name
        for reflection in made
        for name in _taught_by(lessons, reflection, needed[str(reflection.trace_id)])
    )
    return Taught(reflections=tuple(made), times=times)


def _taught_by(lessons: Lessons, reflection: Reflection, needed: Sequence[str]) -> frozenset[str]:
    """Return the lessons that a reflection states: what it does not say, nothing can be learned from it."""
    return lessons.kept([reflection.key_insight]) & frozenset(needed)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn in batches and count what agents are shown in the end, what is only proposed, and what it took."""
    setup, data = replace(setup, modes=MODES[cell.text("mode")]), setup.named(cell.text("data"))
    material, arm = taught(setup, data, cell.seed), ARMS[cell.arm]
    learnt = setup.run(_learn(setup, material.reflections, arm, cell.seed))
    lessons, last = lessons_of(data), learnt.playbook
    shown, kept = (_held(lessons, last, only_shown=only) for only in (True, False))
    changes = Counter(change.kind for version in learnt.versions for change in version.changes)
    numbers, through = dict[str, float](), _through(lessons, learnt)
    for least in STRENGTHS:
        common, rare = material.lessons(least), material.lessons(1, least - 1)
        numbers |= {
            f"common_{least}": len(common),
            f"common_shown_{least}": len(shown & common),
            f"through_{least}": len(through[least] & common),
            f"through_shown_{least}": len(through[least] & common & shown),
            f"rare_{least}": len(rare),
            f"rare_shown_{least}": len(shown & rare),
            f"rare_proposed_{least}": len((kept - shown) & rare),
        }
    return {
        **numbers,
        "shown": sum(entry.is_active for entry in last.entries),
        "proposed": sum(not entry.is_active for entry in last.entries),
        "invented_shown": _invented(last, is_shown=True),
        "invented_proposed": _invented(last, is_shown=False),
        "promoted": changes["promote"],
        "expired": changes["expire"],
        "wait": _wait(lessons, learnt),
    }


def _held(lessons: Lessons, playbook: Playbook, *, only_shown: bool) -> frozenset[str]:
    return lessons.kept(entry.content for entry in playbook.entries if entry.is_active or not only_shown)


def _invented(playbook: Playbook, *, is_shown: bool) -> int:
    return sum(is_invented(entry.content) for entry in playbook.entries if entry.is_active == is_shown)


def _through(lessons: Lessons, learnt: Learnt) -> Mapping[int, frozenset[str]]:
    """Return, by m, the lessons that m reflections were named for, or known to say, in what the scans passed on."""
    named: dict[str, set[str]] = defaultdict(set)
    contents = {
        (version.version, entry.id): entry.content for version in learnt.versions for entry in version.entries
    }
    for update in learnt.updates:
        base = update.plan.base_version
        said: list[tuple[str, Operation | Known]] = [
            *((operation.content, operation) for operation in update.result.operations),
            *((contents[base, claim.entry_id], claim) for claim in update.result.known),
        ]
        for content, source in said:
            for name in lessons.kept([content]):
                named[name].update(source.evidence)
    return {least: frozenset(name for name, ids in named.items() if len(ids) >= least) for least in STRENGTHS}


def _wait(lessons: Lessons, learnt: Learnt) -> float:
    """Return how many batches a lesson that is shown in the end was only proposed, in the mean."""
    first_kept, first_shown = dict[str, int](), dict[str, int]()
    for number, version in enumerate(learnt.versions):
        for name in _held(lessons, version, only_shown=False):
            first_kept.setdefault(name, number)
        for name in _held(lessons, version, only_shown=True):
            first_shown.setdefault(name, number)
    waits = [number - first_kept[name] for name, number in first_shown.items()]
    return sum(waits) / len(waits) if waits else 0.0


async def _learn(
    setup: Setup,
    made: Sequence[Reflection],
    arm: Arm,
    seed: int,
) -> Learnt:
    async with setup.open_model(seed) as model:
        return await learn(setup.paced(model, seed), made, arm, BATCH_SIZE)


def report(setup: Setup, measured: Measured) -> Report:
    """Show what agents are shown in every mode, and decide the criteria."""
    return joined(report_on(data, measured.where(data=data.name)) for data in setup.data)
