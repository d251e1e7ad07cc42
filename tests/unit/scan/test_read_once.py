"""A reply is read once, with its items' places as evidence: what follows is what reading it by evidence gives."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from combee.adapters.ports import PoisonError
from combee.core.methods import ace
from combee.core.methods.method import Answer
from combee.core.playbook.versions import empty
from combee.core.text.similarity.lessons import same_lesson
from combee.scan.aggregate import Aggregator, _Item
from combee_schemas.base import Usage
from combee_schemas.model import Reply
from combee_schemas.scan import OperationKind
from support.models import ModelClient, ScriptedModel

words = st.lists(st.sampled_from(["margin", "parcel", "order", "fee", "rate"]), max_size=4).map(" ".join)
evidence = st.lists(st.sampled_from("abcdef"), max_size=3, unique=True).map(tuple)
items = st.builds(
    lambda text, rests, n, against: _Item(
        text=text, lessons=(text,), evidence=rests, guessed=rests[:n], against=against
    ),
    words,
    evidence,
    st.integers(0, 2),
    st.frozensets(st.sampled_from(["e1", "e2"]), max_size=2),
)
numbers = st.none() | st.lists(st.integers(0, 6), max_size=3)
operations = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ADD", "UPDATE", "MERGE", "REMOVE", "?"]),
        "content": words,
        "entry_ids": st.lists(st.sampled_from(["e1", "e2"]), max_size=2),
        "sources": numbers,
    }
)


@given(st.lists(items, max_size=5), st.lists(operations, max_size=5), numbers)
def test_an_answer_that_is_read_once_is_the_same(
    given_items: Sequence[_Item], said: Sequence[object], dropped: object
) -> None:
    reply = Reply(body={"operations": list(said), "dropped": dropped}, usage=Usage())
    aggregator = Aggregator(ModelClient(ScriptedModel()))
    assert outcome(lambda: aggregator._traced(empty("a"), reply, given_items)) == outcome(
        lambda: by_evidence(aggregator, reply, given_items)
    )


def outcome(work: Callable[[], Answer]) -> Answer | str:
    """Return an answer, or why there is none."""
    try:
        return work()
    except PoisonError as error:
        return str(error)


def by_evidence(aggregator: Aggregator, reply: Reply, given_items: Sequence[_Item]) -> Answer:
    """Return an answer read twice: by evidence, and by items to find out which are guesses."""
    answer = aggregator._read(empty("a"), reply, [item.evidence for item in given_items])
    by_item = ace.read(empty("a"), reply.body, [(str(at),) for at in range(len(given_items))])
    traced = []
    for operation, named in zip(answer.operations, by_item.operations, strict=True):
        places = [int(at) for at in named.evidence]
        if named.kind == OperationKind.REMOVE:
            meant = [at for at in places if given_items[at].against.intersection(named.entry_ids)]
        else:
            meant = [at for at in places if same_lesson(given_items[at].text, named.content)]
        sure = frozenset[str]().union(*(given_items[at].sure for at in meant))
        guessed = tuple(each for each in operation.evidence if each not in sure)
        traced.append(operation if operation.guessed else operation.model_copy(update={"guessed": guessed}))
    return replace(answer, operations=tuple(traced))
