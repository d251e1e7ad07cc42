"""The head start of a batch's first group, through all services."""

from combee.scan.head_start import HeadStart
from combee_experiments.running.virtual_time import LoopClock
from combee_schemas.model import Prompt
from support.deployment import one_batch
from support.models import ScriptedModel


class Counted(HeadStart):
    """A head start that counts the calls that wait."""

    def __init__(self) -> None:
        super().__init__(LoopClock())
        self.waited = 0

    async def wait(self, prompt: Prompt) -> None:
        """Count."""
        del prompt
        self.waited += 1


async def test_all_groups_of_a_batch_but_the_first_wait() -> None:
    head_start = Counted()
    deployment = await one_batch(ScriptedModel(), 16, head_start=head_start, groups=4)
    assert deployment.model.calls > 4
    assert head_start.waited == 3
