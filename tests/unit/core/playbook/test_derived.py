"""What follows from a version is worked out once, whatever is asked about it."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from combee.core.formats.render import ace_lines_by_age
from combee.core.methods import ace
from combee.core.methods.method import shaped
from combee.core.playbook import derived
from combee.core.playbook.derived import once_per_version
from combee.core.playbook.versions import after_update, empty
from combee.core.text.similarity.lessons import index_of
from combee.scan.aggregate import Aggregator
from combee_schemas.base import Shown
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.scan import GroupMember, NodeResult, Operation, OperationKind, Seen, Update
from support.ledger import reflection
from support.models import ModelClient, ScriptedModel

BASE = empty("p").model_copy(
    update={
        "version": 1,
        "entries": tuple(Entry(id=f"e-{n}", section="OTHERS", content=f"lesson {n}") for n in range(9)),
    }
)


def copied(name: str = BASE.name) -> Playbook:
    return BASE.model_copy(update={"version": 2, "name": name})


def test_each_version_is_worked_on_once() -> None:
    worked: list[int] = []

    @once_per_version
    def size(playbook: Playbook) -> int:
        worked.append(playbook.version)
        return len(playbook.entries)

    first, second = copied(), copied()
    assert [size(first), size(second), size(first), size(second)] == [9] * 4
    assert worked == [2, 2]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "VERSIONS_KEPT", 2)
    worked: list[int] = []

    @once_per_version
    def size(playbook: Playbook) -> int:
        worked.append(playbook.version)
        return len(playbook.entries)

    many = [copied() for _ in range(3)]
    for version in (*many, *many):
        size(version)
    assert len(worked) == 6


async def test_calls_on_one_version_share_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = list[int]()

    def counted(playbook: Playbook) -> Iterable[str]:
        rendered.append(len(playbook.entries))
        return ace_lines_by_age(playbook)

    monkeypatch.setattr(ace, "ace_lines_by_age", counted)
    known = {"reasoning": "", "operations": [], "known": [{"n": 1, "entry_id": "e-1"}]}
    adding = {"type": "ADD", "section": "OTHERS", "content": "new", "entry_ids": [], "sources": [1]}
    replies = iter([known, {**known, "operations": [adding]}] * 3)
    method = shaped(ace, PlanSettings())
    aggregator = Aggregator(ModelClient(ScriptedModel(lambda _: next(replies))), method)
    base, shown = copied("p"), Shown(version=2, entry_ids=("e-1",))
    for n in range(6):
        await aggregator.group(base, [GroupMember(offset=n, reflection=reflection(n, shown=shown))])
    assert rendered == [9]


def test_a_version_is_made_of_a_copy_so_that_others_find_what_was_there() -> None:
    base = copied()
    index = index_of(base)
    plan = Plan(batch_id="b", playbook="p", sequence=1, widths=(1,), base_version=2, reflections=1)
    added = Operation(kind=OperationKind.ADD, section="OTHERS", content="a new lesson", evidence=("r",))
    result = NodeResult(
        status="ok", operations=(added,), seen=(Seen(reflection_id="r", offset=1, said=True),)
    )
    update = Update(plan=plan, manifest_offset=1, node_id="n", result=result)
    made = after_update(base, update, budget_tokens=16_000, now_ms=1)
    assert len(made.entries) == 10
    assert index_of(base) is index
    assert (index.saying("a new lesson"), index.saying("lesson 3")) == ((), ("e-3",))


def test_what_two_threads_ask_of_one_version_is_worked_out_once() -> None:
    worked, second = list[str](), Event()

    @once_per_version
    def size(playbook: Playbook) -> int:
        if worked:
            second.set()
        worked.append(playbook.name)
        second.wait(0.5)
        return len(playbook.entries)

    base = copied()
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(size, (base, base))) == [9, 9]
    assert worked == ["p"]
