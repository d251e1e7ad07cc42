"""The store that commands use in the gateway's process; it reads the views, which follow the log."""

from collections.abc import Mapping, Sequence

from combee.adapters.ports import Outgoing
from combee.core.commands import has_taken_effect, is_about_a_label, is_deleted, subject
from combee.core.log.live.values import LiveDeadLetter
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.log.commands.playbook import Commands, Effect, Sent
from combee_schemas import topics
from combee_schemas.base import is_branch_of
from combee_schemas.command import Command
from combee_schemas.playbook import Label, Playbook

RECHECK_S = 1.0


class ContextStore:
    """A ``Store`` in which a command is done once the views show it, so that the next request sees it too."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def newest(self, name: str) -> Playbook:
        return self._context.playbooks.latest(name)

    async def version(self, name: str, number: int) -> Playbook | None:
        return await self._context.history.exactly(name, number, self._context.playbooks.latest(name))

    async def branches(self, name: str) -> Sequence[Playbook]:
        known = self._context.playbooks.view.all().values()
        return [line for line in known if is_branch_of(line.name, name) and not is_deleted(line)]

    async def labels(self, name: str) -> Mapping[str, Label]:
        return playbooks.labels_of(self._context, name)

    async def write(self, *outgoing: Outgoing) -> Sequence[int]:
        return await self._context.write(*outgoing)

    async def effect(self, command: Command) -> Effect | None:
        while not self._context.stopping.is_set():
            seen = self._context.changed.seen
            if has_taken_effect(command, message := self._current(command)):
                return message
            await self._context.changed.wait(seen, RECHECK_S)
        return None

    def _current(self, command: Command) -> Effect | None:
        if is_about_a_label(command):
            return playbooks.labels_of(self._context, command.playbook).get(command.label)
        return self._context.playbooks.latest(subject(command))

    async def refusal(self, sent: Sent) -> LiveDeadLetter:
        origins = {f"{topics.COMMANDS.name}[{sent.partition}]@{offset}" for offset in sent.offsets}
        while True:
            picture = await self._context.live.seen()
            for letter in reversed(picture.dead_letters):
                if letter.origin in origins:
                    return letter
            await self._context.live.changed(picture.revision, RECHECK_S)


def commands_of(context: Context, issued_by: str) -> Commands:
    """Return the commands, issued by an authorised caller."""
    embeds = context.settings.model.embedding_model is not None
    return Commands(
        context.log,
        ContextStore(context),
        context.clock,
        issued_by=issued_by,
        embeds=embeds,
        known=context.sources,
    )
