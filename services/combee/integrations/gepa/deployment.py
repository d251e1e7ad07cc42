"""GEPA's reflection strategy on a running deployment, which calls the model and keeps each proposal as a version.

    gepa.optimize(..., reflection_strategy=DeployedReflectionLM("http://127.0.0.1:8750", "support/program"))

Each component is a separate playbook. A proposal imports the component's current text, publishes the records, closes
the window and reads the resulting version. The deployment needs ``COMBEE_METHOD=gepa``. Personal data and secrets in
records are replaced, as by the SDK.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal

from combee.adapters.http.commands import MAX_WAIT_S, GatewayCommands
from combee.adapters.http.gateway import GatewayTransport
from combee.adapters.ports import CombeeError, TransientError
from combee.core.methods import gepa as method
from combee.core.names.identity import similar_name
from combee.sdk.address import resolved_address
from combee.sdk.background import Background
from combee.sdk.redaction import Redactor
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

TIMEOUT_S = 900.0


class DeployedReflectionLM:
    """Has a running deployment make GEPA's proposals.

    ``url``: the gateway's; None: ``COMBEE_GATEWAY_URL``. ``playbook``: each component's playbook is
    ``PLAYBOOK/COMPONENT``. In one iteration, the names of all jobs but the first also have a number, so that the jobs
    run concurrently.
    """

    def __init__(
        self,
        url: str | None = None,
        playbook: str = "gepa",
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        logger: Any | None = None,
    ) -> None:
        address = resolved_address(url, prefix=None, api_key=api_key, security={})
        if not address.is_gateway:
            raise ValueError(
                "a deployment is reached through its gateway: give its http:// or https:// address"
            )
        self._address = address
        self._playbook = playbook
        self._timeout_s = timeout_s
        self.logger = logger
        self._background = Background()
        self._usage = NOTHING_SPENT

    @property
    def total_tokens_in(self) -> int:
        """Tokens that the deployment's model read for these proposals; only the deployment knows their cost."""
        return self._usage.tokens_in

    @property
    def total_tokens_out(self) -> int:
        """Tokens that the deployment's model wrote."""
        return self._usage.tokens_out

    def bind_logger(self, logger: Any) -> None:
        """Use the run's logger."""
        if self.logger is None:
            self.logger = logger

    def reflect(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> tuple[ReflectionProposal, "DeployedReflectionLM"]:
        """Return new texts of a candidate's components."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(
        self, jobs: Sequence[ReflectionJob]
    ) -> list[tuple[ReflectionProposal, "DeployedReflectionLM"]]:
        """Return the proposals of several jobs, which run concurrently."""
        return [(proposal, self) for proposal in self._background.submit(self._proposals(jobs)).result()]

    def close(self) -> None:
        """End the background thread."""
        self._background.stop()

    async def _proposals(self, jobs: Sequence[ReflectionJob]) -> list[ReflectionProposal]:
        run = _Run(GatewayCommands(self._address.url, api_key=self._address.api_key), self._transport())
        proposals = [ReflectionProposal(new_texts={}) for _ in jobs]
        try:
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as group:
                for number, (job, proposal) in enumerate(zip(jobs, proposals, strict=True)):
                    for name in self._usable(job):
                        place = "/".join(
                            [self._playbook, similar_name(name), *([str(number)] if number else [])]
                        )
                        group.create_task(run.propose(place, name, job[0][name], job[1][name], proposal))
        except TimeoutError as error:
            raise TransientError(
                f"no version has been made within {self._timeout_s:.0f} s: is COMBEE_METHOD=gepa set there?"
            ) from error
        except ExceptionGroup as failed:
            raise next(
                (error for error in failed.exceptions if isinstance(error, CombeeError)), failed
            ) from failed
        finally:
            self._usage += run.usage
            await run.close()
        for proposal in proposals:
            calls = (value for key, value in proposal.metadata.items() if key.endswith(":num_lm_calls"))
            proposal.metadata["combee:total_lm_calls"] = sum(calls)
        return proposals

    def _transport(self) -> GatewayTransport:
        return GatewayTransport(self._address.url, api_key=self._address.api_key)

    def _usable(self, job: ReflectionJob) -> list[str]:
        candidate, dataset, components = job
        usable = [name for name in dict.fromkeys(components) if name in candidate and dataset.get(name)]
        for name in components:
            if name not in usable and self.logger is not None:
                self.logger.log(f"Component '{name}' has no records, or is not a component. Skipping.")
        return usable


class _Run:
    """The proposals of one iteration, and the tokens that they used."""

    def __init__(self, commands: GatewayCommands, transport: GatewayTransport) -> None:
        self._commands = commands
        self._transport = transport
        self._redact = Redactor()
        self.usage: Usage = NOTHING_SPENT

    async def propose(
        self,
        playbook: str,
        component: str,
        current: str,
        records: Sequence[Mapping[str, Any]],
        proposal: ReflectionProposal,
    ) -> None:
        """Have a component's playbook learn from records, and write the new text into ``proposal``."""
        text = json.dumps({component: current})
        imported = {"format": "gepa", "text": text}
        before = await self._commands.send(playbook, "import", imported, wait_s=MAX_WAIT_S)
        # A new id each time, so that the same record teaches again when another text was used.
        run = uuid4().hex
        reflections = [
            Reflection(
                reflection_id=f"{run}-{n}",
                playbook=playbook,
                side_info={name: method.cut(self._redact(_as_text(value))) for name, value in record.items()},
            )
            for n, record in enumerate(records)
        ]
        await self._transport.send(reflections)
        await self._commands.send(playbook, "flush", {})
        # A playbook's batches take reflections in order: once the last is applied, all are.
        fate = await self._commands.fate(playbook, reflections[-1].reflection_id)
        if fate.version is None:
            raise TransientError(f"{playbook}: nothing was learned: {fate.detail}")
        numbers = range((before.version or 0) + 1, fate.version + 1)
        fetched = await asyncio.gather(*(self._transport.fetch(playbook, number) for number in numbers))
        versions = [version for version in fetched if version is not None]
        if not versions:
            raise TransientError(f"{playbook}: version {fate.version} is no longer in the log")
        self._write(component, current, versions, proposal)

    def _write(
        self, component: str, current: str, versions: Sequence[Playbook], proposal: ReflectionProposal
    ) -> None:
        batches = [version.batch for version in versions if version.batch is not None]
        usage = sum((batch.usage for batch in batches), NOTHING_SPENT)
        self.usage += usage
        newest = versions[-1]
        learned = next((entry.content for entry in newest.entries if entry.section == component), current)
        if learned != current:
            proposal.new_texts[component] = learned
        groups = max((batch.plan.widths[0] for batch in batches), default=1)
        metadata = {
            "k": groups,
            "num_lm_calls": usage.calls,
            "mode": "map_reduce" if groups > 1 else "fallback_single_call",
            "playbook": newest.name,
            "version": newest.version,
            "degraded": any(batch.degraded for batch in batches),
        }
        proposal.metadata.update({f"combee:{component}:{key}": value for key, value in metadata.items()})

    async def close(self) -> None:
        """Disconnect."""
        await self._commands.close()
        await self._transport.close()


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
