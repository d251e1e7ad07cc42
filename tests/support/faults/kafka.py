"""An embedded broker whose nodes a test kills, freezes and starts again."""

import asyncio
import signal

from combee.adapters.embedded_kafka import EmbeddedKafka


class FragileKafka(EmbeddedKafka):
    """``EmbeddedKafka`` with faults; nodes are numbered from 1."""

    def kill(self, node: int | None = None) -> None:
        """End one node, or all, with kill -9."""
        self._signal(signal.SIGKILL, node)

    def pause(self) -> None:
        """Freeze all nodes: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let paused nodes go on."""
        self._signal(signal.SIGCONT)

    async def restart_node(self, node: int, timeout_s: float = 60) -> None:
        """Start a killed node again on its data and its ports; a majority of the nodes must be up."""
        again, jvm = self._nodes[node - 1], await self.prepare()
        await self._check_gone(again)
        try:
            async with asyncio.timeout(timeout_s):
                await self._run(jvm, [again])
        except TimeoutError as error:
            raise self._late(timeout_s) from error

    def _signal(self, number: signal.Signals, node: int | None = None) -> None:
        for broker in self._nodes if node is None else [self._nodes[node - 1]]:
            if broker.process:
                broker.process.signal(number)
