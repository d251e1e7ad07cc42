"""Embeddings of texts, cached by text."""

from collections.abc import Sequence

import pytest

from combee.adapters.ports import Embedded, TransientError
from combee.process.worker import vectors
from combee.process.worker.vectors import Embeddings, Vectors
from combee_schemas.base import Usage


class Lengths:
    """An embedder whose vectors are the texts' lengths; it fails from the ``fails_after``-th request on."""

    def __init__(self, fails_after: int = 99) -> None:
        self.requests: list[Sequence[str]] = []
        self.fails_after = fails_after

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if len(self.requests) >= self.fails_after:
            raise TransientError("nobody listens")
        self.requests.append(list(texts))
        return Embedded(
            vectors=[[float(len(text))] for text in texts], usage=Usage(calls=1, tokens_in=len(texts))
        )

    async def close(self) -> None:
        """Nothing is open."""


async def test_each_text_is_asked_for_once_and_only_what_was_asked_costs() -> None:
    embedder = Lengths()
    subject = Vectors(embedder, "m@0.9")
    first = await subject.of(["a", "bb", "a"])
    assert {text: list(vector) for text, vector in first.vectors.items()} == {"a": [1.0], "bb": [2.0]}
    assert (first.by, first.usage.calls, first.usage.tokens_in) == ("m@0.9", 1, 2)
    again = await subject.of(["bb", "ccc"])
    assert set(again.vectors) == {"bb", "ccc"}
    assert again.usage.tokens_in == 1
    assert (await subject.of(["a", "ccc"])).usage.calls == 0
    assert embedder.requests == [["a", "bb"], ["ccc"]]


async def test_without_an_embedding_model_there_are_no_vectors_and_no_reason() -> None:
    assert await Vectors().of(["a"]) == Embeddings()
    assert Vectors(None, "m").model == ""


async def test_a_failure_leaves_no_vectors_and_says_why() -> None:
    subject = Vectors(Lengths(fails_after=0), "m")
    assert await subject.of(["a"]) == Embeddings(by="none of m (nobody listens)")


async def test_what_was_answered_before_a_failure_is_counted_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "AT_ONCE", 2)
    embedder = Lengths(fails_after=1)
    subject = Vectors(embedder, "m")
    failed = await subject.of(["a", "bb", "ccc"])
    assert (failed.vectors, failed.usage.tokens_in, failed.by) == ({}, 2, "none of m (nobody listens)")
    embedder.fails_after = 99
    assert (await subject.of(["a", "bb", "ccc"])).usage.tokens_in == 1
    assert embedder.requests == [["a", "bb"], ["ccc"]]


async def test_the_vectors_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "KEPT", 2)
    embedder = Lengths()
    subject = Vectors(embedder, "m")
    assert set((await subject.of(["a", "bb", "ccc"])).vectors) == {"a", "bb", "ccc"}, "all are returned"
    await subject.of(["bb"])
    await subject.of(["dddd"])
    assert (await subject.of(["bb"])).usage.calls == 0
    assert (await subject.of(["a"])).usage.calls == 1
