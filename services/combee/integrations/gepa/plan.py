"""The calls about one component of a candidate, with GEPA's prompts, and the use of their replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from combee.core.methods import gepa as method
from combee.integrations.gepa.calls import Call, Messages
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Operation, OperationKind

AGGREGATION_TEMPLATE = """I gave an assistant this instruction:
```
<curr_param>
```

Several writers each saw other examples of how it did, and each proposed an updated instruction:
```
<side_info>
```

Your task is to synthesize these proposed instruction updates into one instruction that says everything worth keeping
of all of them: every rule and fact once, those that complement each other side by side, and where two conflict the
more specific one. Be as short as you can without losing a rule.

Provide the new instruction within ``` blocks."""
Templates = str | dict[str, str] | None
"""One template for all components, or one for each by name; None for GEPA's own."""
NO_PLAYBOOK = Playbook(name="gepa", version=0)
"""An empty playbook, because GEPA keeps the texts itself."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """One component of one job."""

    job: int
    place: int
    name: str
    current: str
    seed: int | None
    """Seed of the groups, None for too few records."""
    groups: Sequence[Sequence[int]]
    """Places of each group's records."""
    level_1: list[Call] = field(default_factory=list)
    combine: Call | None = None

    @property
    def proposals(self) -> tuple[Operation, ...]:
        """The texts from usable replies of groups, with their evidence."""
        return tuple(
            Operation(
                kind=OperationKind.UPDATE, section=self.name, content=text, evidence=tuple(map(str, group))
            )
            for call, group in zip(self.level_1, self.groups, strict=True)
            if (text := call.text) is not None
        )

    @property
    def calls(self) -> int:
        """Number of calls made."""
        return sum(call.made for call in (*self.level_1, *filter(None, [self.combine])))

    def mode(self, count: int) -> str:
        """Return GEPA's name for the result of ``count`` proposals; merged: no model could combine them."""
        if self.combine is not None:
            return "map_reduce" if self.combine.text is not None else "merged"
        if self.seed is None:
            return "fallback_single_call"
        return "single_group" if count else "no_group_proposals"

    def write(self, proposal: ReflectionProposal) -> None:
        """Add the result to a job's proposal."""
        proposals, combined = self.proposals, self.combine.text if self.combine else None
        adopted = combined or next((won.content for won in method.merge(NO_PLAYBOOK, proposals)), None)
        usable = [call for call in self.level_1 if call.text is not None]
        shown = self.combine or next(iter(usable or self.level_1))
        if adopted is not None:
            proposal.new_texts[self.name] = adopted
            proposal.prompts[self.name] = shown.prompt
            proposal.raw_lm_outputs[self.name] = shown.reply
        metadata: dict[str, Any] = {"num_lm_calls": self.calls, "mode": self.mode(len(proposals))}
        if self.seed is not None:
            metadata |= {
                "level1_prompts": [call.prompt for call in self.level_1],
                "level1_outputs": [call.reply for call in self.level_1],
                "k": len(self.groups),
                "seed": self.seed,
            }
        proposal.metadata.update({f"combee:{self.name}:{key}": value for key, value in metadata.items()})


def check(templates: Templates) -> None:
    """Raise ValueError for a template without its placeholders."""
    for template in templates.values() if isinstance(templates, dict) else [templates]:
        InstructionProposalSignature.validate_prompt_template(template)


def prompt_of(current: str, records: Sequence[Mapping[str, Any]], template: str | None) -> Messages:
    """Return GEPA's prompt about a text and records."""
    given = {
        "current_instruction_doc": current,
        "dataset_with_feedback": records,
        "prompt_template": template,
    }
    prompt: Messages = InstructionProposalSignature.prompt_renderer(given)
    return prompt
