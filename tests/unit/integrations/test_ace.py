"""ACE's contract: the signature of its curator, its texts, its ids."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import TransientError
from combee.core.batching.limits import PRODUCT
from combee.core.methods import ace
from combee.core.text.prompt import estimate_tokens
from combee.integrations.ace import CombeeCurator
from combee.process.settings.batch import BatchSettings
from combee.process.settings.methods import plan_settings
from combee_schemas.model import Prompt, Reply
from combee_sim.inprocess import SimulatedModel

EMPTY = """## STRATEGIES & INSIGHTS

## FORMULAS & CALCULATIONS

## CODE SNIPPETS & TEMPLATES

## COMMON MISTAKES TO AVOID

## PROBLEM-SOLVING HEURISTICS

## CONTEXT CLUES & INDICATORS

## OTHERS"""
"""ACE's own text of a new playbook."""
LESSONS = (
    "Ask for the order number before anything else.",
    "A manager has to approve refunds above 100.",
    "Opened parcels cost a restocking fee of 15 %.",
    "Gift cards are never refunded in cash.",
)
LINE = re.compile(r"\[([^\]]+)\]\s*helpful=(\d+)\s*harmful=(\d+)\s*::\s*(.*)")
"""ACE's ``parse_playbook_line``."""
BULLET_ID = re.compile(r"\[([a-z]{3,}-\d{5})\]")
"""ACE's generator finds ``bullet_ids`` so."""


def reflection(insight: str, *tags: tuple[str, str]) -> str:
    """Return what ACE's reflector answers."""
    texts = dict.fromkeys(
        ("reasoning", "error_identification", "root_cause_analysis", "correct_approach"), ""
    )
    return json.dumps(
        {**texts, "key_insight": insight, "bullet_tags": [{"id": entry, "tag": tag} for entry, tag in tags]}
    )


class Loop:
    """Calls a curator as ACE's loop does."""

    def __init__(self, curator: CombeeCurator, playbook: str = EMPTY, next_id: int = 1) -> None:
        self.curator = curator
        self.playbook = playbook
        self.next_id = next_id
        self.operations: list[dict[str, Any]] = []
        self.call_info: dict[str, Any] = {}
        self._step = 0

    def step(self, said: str, *, total: int = 1_000, **other: Any) -> None:
        self._step += 1
        given: dict[str, Any] = {
            "current_playbook": self.playbook,
            "recent_reflection": said,
            "question_context": f"Refund order {self._step}",
            "current_step": self._step,
            "total_samples": total,
            "token_budget": 80_000,
            "playbook_stats": {},
            "use_ground_truth": True,
            "use_json_mode": False,
            "call_id": f"train_e_1_s_{self._step}",
            "log_dir": None,
            "next_global_id": self.next_id,
        }
        self.playbook, self.next_id, self.operations, self.call_info = self.curator.curate(**given | other)

    def lines(self) -> list[re.Match[str]]:
        return [match for line in self.playbook.splitlines() if (match := LINE.match(line))]


class Answering(SimulatedModel):
    """The stand-in, which remembers what it was asked and may be away, or say something of its own."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        super().__init__()
        self.prompts: list[Prompt] = []
        self.away = False
        self._replies = list(replies)

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        self.prompts.append(prompt)
        if self.away:
            raise TransientError("the model is away")
        reply = await super().ask(prompt, priority=priority)
        return Reply(body=self._replies.pop(0), usage=reply.usage) if self._replies else reply


@pytest.fixture
def model() -> Answering:
    return Answering()


@pytest.fixture
def curator(model: Answering) -> Iterator[CombeeCurator]:
    made = CombeeCurator(model, batch_size=4)
    yield made
    made.close()


def adding(section: str, content: str) -> dict[str, Any]:
    return {
        "reasoning": "",
        "operations": [{"type": "ADD", "section": section, "content": content, "sources": [1]}],
    }


def test_curate_has_aces_signature() -> None:
    parameters = list(inspect.signature(CombeeCurator.curate).parameters.values())[1:]

    empty = inspect.Parameter.empty
    assert [(parameter.name, parameter.default) for parameter in parameters] == [
        ("current_playbook", empty),
        ("recent_reflection", empty),
        ("question_context", empty),
        ("current_step", empty),
        ("total_samples", empty),
        ("token_budget", empty),
        ("playbook_stats", empty),
        ("use_ground_truth", True),
        ("use_json_mode", False),
        ("call_id", "curate"),
        ("log_dir", None),
        ("next_global_id", 1),
    ]


def test_a_full_batch_becomes_lines_and_operations_that_ace_reads(curator: CombeeCurator) -> None:
    loop = Loop(curator)
    for insight in LESSONS[:3]:
        loop.step(reflection(insight))
        assert (loop.playbook, loop.next_id, loop.operations) == (EMPTY, 1, [])
        assert loop.call_info["num_calls"] == 0

    loop.step(reflection(LESSONS[3]))

    assert {match[4] for match in loop.lines()} == set(LESSONS)
    assert all(match[2] == match[3] == "0" for match in loop.lines())
    assert len(BULLET_ID.findall(loop.playbook)) == len(LESSONS)
    assert loop.next_id == 1 + len(LESSONS)
    assert [header for header in loop.playbook.splitlines() if header.startswith("##")] == [
        header for header in EMPTY.splitlines() if header
    ]
    assert {operation["content"] for operation in loop.operations} == set(LESSONS)
    for operation in loop.operations:
        assert operation.keys() == {"type", "section", "content", "reason"}
        assert operation["type"] == "ADD"
    assert loop.call_info["reflections"] == 4
    assert loop.call_info["prompt_num_tokens"] > 0


def test_nine_reflections_are_two_levels(model: Answering) -> None:
    curator = CombeeCurator(model, batch_size=9)
    loop = Loop(curator)
    for n in range(9):
        loop.step(reflection(LESSONS[n % 4]))
    curator.close()

    assert loop.call_info["widths"] == [3, 1]
    # The stand-in's combine overlooks a lesson, so the root asks who says it.
    assert [prompt.reply_name for prompt in model.prompts] == ["operations"] * 4 + ["check"]
    assert curator.usage.calls == 5


def test_the_last_step_learns_what_waits(curator: CombeeCurator) -> None:
    loop = Loop(curator)
    loop.step(reflection(LESSONS[0]), total=2)
    loop.step(reflection(LESSONS[1]), total=2)

    assert {match[4] for match in loop.lines()} == set(LESSONS[:2])


def test_what_waits_is_learned_on_demand(curator: CombeeCurator) -> None:
    loop = Loop(curator)
    loop.step(reflection(LESSONS[0]))

    text, next_id, operations, _ = curator.flush(
        loop.playbook, token_budget=80_000, next_global_id=loop.next_id
    )

    assert LESSONS[0] in text
    assert (next_id, len(operations)) == (2, 1)
    assert curator.flush(text, token_budget=80_000, next_global_id=next_id)[:3] == (text, next_id, [])


def test_counters_are_aces_and_are_not_counted_again(curator: CombeeCurator, model: Answering) -> None:
    loop = Loop(curator)
    for insight in LESSONS:
        loop.step(reflection(insight))
    first = loop.lines()[0]
    counted = first[0].replace("helpful=0 harmful=0", "helpful=8 harmful=2")
    loop.playbook = loop.playbook.replace(first[0], counted)

    for n in range(4):
        loop.step(reflection(f"Look at the date of purchase, case {n}.", (first[1], "helpful")))

    assert counted in loop.playbook.splitlines()
    assert f"{first[1]} so far 8 helpful, 2 harmful" in model.prompts[-1].user


def test_ids_go_on_after_the_highest_there_is(curator: CombeeCurator) -> None:
    begun = EMPTY.replace("\n\n## OTHERS", "\n[ctx-00041] helpful=3 harmful=0 :: Known before.\n\n## OTHERS")
    loop = Loop(curator, begun)
    for insight in LESSONS:
        loop.step(reflection(insight))

    numbers = sorted(int(match[1][-5:]) for match in loop.lines())
    assert numbers == list(range(41, loop.next_id))
    assert len(numbers) > 2
    assert "[ctx-00041] helpful=3 harmful=0 :: Known before." in loop.playbook


def test_a_playbook_without_counters_stays_without(curator: CombeeCurator) -> None:
    loop = Loop(curator, "## OTHERS\n[misc-00001] Known before.\n")
    for insight in LESSONS:
        loop.step(reflection(insight))

    assert "helpful=" not in loop.playbook
    assert len(BULLET_ID.findall(loop.playbook)) == loop.next_id - 1 > 2


def test_no_section_is_begun() -> None:
    curator = CombeeCurator(Answering(adding("Date rules", LESSONS[0])), batch_size=1)
    loop = Loop(curator)
    loop.step(reflection(LESSONS[0]))
    other = Loop(CombeeCurator(Answering(adding("common_mistakes_to_avoid", LESSONS[1])), batch_size=1))
    other.step(reflection(LESSONS[1]))

    assert [match[1] for match in loop.lines()] == ["misc-00001"]
    assert [match[1] for match in other.lines()] == ["err-00001"]


def test_nothing_new_leaves_the_text_as_it_is() -> None:
    curator = CombeeCurator(Answering({"reasoning": "", "operations": [], "dropped": [1]}), batch_size=1)
    loop = Loop(curator)
    loop.step(reflection(LESSONS[0]))
    before = loop.playbook, loop.next_id
    loop.step(reflection(LESSONS[0]))

    assert (loop.playbook, loop.next_id) == before


@pytest.mark.parametrize(
    "said", [LESSONS[0], f"```json\n{reflection(LESSONS[0])}\n```", f"Well: {LESSONS[0]} {{"]
)
def test_a_reflection_is_learned_whatever_is_around_it(
    curator: CombeeCurator, model: Answering, said: str
) -> None:
    Loop(curator).step(said, total=1)

    assert LESSONS[0] in model.prompts[0].user


def test_tags_of_entries_that_are_not_there_are_not_believed(
    curator: CombeeCurator, model: Answering
) -> None:
    Loop(curator).step(reflection(LESSONS[0], ("calc-00099", "harmful"), ("misc-00001", "splendid")), total=1)

    assert "calc-00099" not in model.prompts[0].user
    assert "splendid" not in model.prompts[0].user


def test_a_model_that_is_away_loses_no_reflection(curator: CombeeCurator, model: Answering) -> None:
    loop = Loop(curator)
    for insight in LESSONS[:3]:
        loop.step(reflection(insight))
    model.away = True
    with pytest.raises(TransientError, match="away"):
        loop.step(reflection(LESSONS[3]))
    model.away = False

    loop.step(reflection("Look at the date of purchase."))

    assert set(LESSONS) < {match[4] for match in loop.lines()}


def test_the_token_budget_holds(model: Answering) -> None:
    curator = CombeeCurator(model, batch_size=4)
    loop = Loop(curator)
    for n in range(24):
        loop.step(
            reflection(f"Rule {n}: {LESSONS[n % 4]} This holds for shops in region {n}."), token_budget=200
        )
    curator.close()

    assert loop.lines()
    assert estimate_tokens("\n".join(match[0] for match in loop.lines())) <= 220


def test_the_same_run_makes_the_same_playbook() -> None:
    def learned(salt: str = "") -> tuple[str, list[str]]:
        model = Answering()
        curator = CombeeCurator(model, batch_size=9, salt=salt)
        loop = Loop(curator)
        for n in range(9):
            loop.step(reflection(f"{LESSONS[n % 4]} Case {n}."))
        curator.close()
        return loop.playbook, sorted(prompt.user for prompt in model.prompts)

    assert learned() == learned()
    assert learned()[1] != learned("other")[1]


def test_a_batch_is_cut_as_a_deployment_would() -> None:
    # One process is one source.
    configured = plan_settings(BatchSettings(trust="lab"))

    assert configured.model_copy(update={"templates": ""}) == PRODUCT


def test_the_call_is_logged_where_ace_logs(curator: CombeeCurator, tmp_path: Path) -> None:
    Loop(curator).step(reflection(LESSONS[0]), total=1, log_dir=str(tmp_path / "detailed_llm_logs"))

    (file,) = (tmp_path / "detailed_llm_logs").iterdir()
    told = json.loads(file.read_text("utf-8"))
    assert file.name == "curator_train_e_1_s_1.json"
    assert (told["role"], told["reflections"], told["num_calls"]) == ("curator", 1, 1)


def test_a_text_beyond_bounds_is_cut(curator: CombeeCurator) -> None:
    Loop(curator).step("x" * 1_000_000, total=1, question_context="y" * 1_000_000)


def test_the_reflectors_fields_are_those_of_the_method() -> None:
    assert set(json.loads(reflection("x"))) == set(ace.REFLECTION_SCHEMA["properties"])
