"""The state of playbooks read from the log when it is asked for: for a process that lives for one command."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from combee.adapters.ports import Log, Outgoing
from combee.core.commands import has_taken_effect, is_about_a_label, subject
from combee.core.playbook.versions import empty
from combee.log.commands.playbook import Effect, Sent
from combee.log.history import History, branches_of, labels_of, newest_snapshot
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.playbook import Label, Playbook, label_key
from combee_schemas.topics import Topic


class LogStore:
    """See ``Store``; effects are followed from the moment before a command is written."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._history = History(log)
        self._newest: dict[str, Playbook] = {}
        self._since: dict[str, Mapping[int, int]] = {}

    async def newest(self, name: str) -> Playbook:
        self._newest[name] = await newest_snapshot(self._log, name) or empty(name)
        return self._newest[name]

    async def version(self, name: str, number: int) -> Playbook | None:
        return await self._history.exactly(name, number, self._newest.get(name))

    async def branches(self, name: str) -> Sequence[Playbook]:
        return await branches_of(self._log, name)

    async def labels(self, name: str) -> Mapping[str, Label]:
        return await labels_of(self._log, name)

    async def write(self, *outgoing: Outgoing) -> Sequence[int]:
        for topic in (topics.HISTORY, topics.LABELS, topics.DEAD_LETTERS):
            self._since[topic.name] = dict(await self._log.ends(topic.name))
        return await self._log.produce(*outgoing)

    async def effect(self, command: Command) -> Effect | None:
        if is_about_a_label(command):
            return await self._followed(topics.LABELS, label_key(command.playbook, command.label), command)
        return await self._followed(topics.HISTORY, subject(command), command)

    async def _followed(
        self, topic: Topic[Playbook] | Topic[Label], key: str, command: Command
    ) -> Effect | None:
        async with aclosing(self._log.follow(topic.name, self._since[topic.name])) as changes:
            async for records in changes:
                for message in topic.under(key, records or ()):
                    if has_taken_effect(command, message):
                        return message
        return None

    async def refusal(self, sent: Sent) -> DeadLetter:
        origin = topics.COMMANDS.name
        changes = self._log.follow(topics.DEAD_LETTERS.name, self._since[topics.DEAD_LETTERS.name])
        async with aclosing(changes):
            async for records in changes:
                for letter in topics.DEAD_LETTERS.under(origin, records or ()):
                    is_mine = (
                        letter.origin_partition == sent.partition and letter.origin_offset in sent.offsets
                    )
                    if letter.origin_topic == origin and is_mine:
                        return letter
        raise AssertionError("a log is followed for ever")
