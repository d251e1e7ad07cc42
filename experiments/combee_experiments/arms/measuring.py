"""Measuring one arm on one set of data: learn, count the lessons, hold the exam."""

from collections.abc import Callable, Sequence

from combee.ports import LanguageModel
from combee_experiments.arms.arms import Arm
from combee_experiments.arms.learning import Learnt, learn
from combee_experiments.arms.material import reflections
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Numbers
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.exam import examine
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.reflection import Reflection

Arrange = Callable[[Sequence[Reflection]], Sequence[Reflection]]


def measure_updates(
    setup: Setup, data: Data, arm: Arm, batch_size: int, seed: int, *, arrange: Arrange = tuple
) -> Numbers:
    """Let an arm learn from the reflections that all arms read; only update calls take time."""
    made = arrange(reflections(setup, data, seed))
    return setup.run(_updates(setup, data, made, arm, batch_size, seed))


async def _updates(
    setup: Setup, data: Data, made: Sequence[Reflection], arm: Arm, batch_size: int, seed: int
) -> Numbers:
    async with setup.open_model(seed) as model:
        learnt = await learn(setup.paced(model, seed), made, arm, batch_size)
        return learnt.numbers() | await exam(setup, model, data, learnt)


async def exam(setup: Setup, model: LanguageModel, data: Data, learnt: Learnt) -> dict[str, float]:
    """Return what the playbook is worth: lessons in it, and what agents get right with it."""
    lessons = lessons_of(data)
    result = await examine(model, data, lessons, lambda _: learnt.playbook, simulated=setup.simulated)
    return {
        "lessons": len(lessons.kept(learnt.texts)),
        "lessons_there": len(lessons.names),
        "accuracy": result.accuracy,
    }
