"""``combee doctor --embeddings``: the threshold of the user's embedding model."""

from collections.abc import Sequence
from math import cos, sin

import pytest

from combee.adapters.ports import Embedded, Embedder, TransientError
from combee.core.text.similarity.measuring import LABELS
from combee.log.evaluation.labelled_pairs import labelled_pairs
from combee.process.settings.loading import load_settings
from combee_schemas.base import Usage
from support.reading import run, run_json

PARAPHRASES = [pair for pair in labelled_pairs() if pair.label == "paraphrase"]


class Knowing:
    """Embeddings that put the wordings of a lesson together and everything else apart."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        lessons = {pair.text: pair.lesson for pair in PARAPHRASES}
        places = {lesson: place for place, lesson in enumerate(dict.fromkeys(lessons.values()))}
        vectors = [[0.0] * (len(places) + 1) for _ in texts]
        for text, vector in zip(texts, vectors, strict=True):
            vector[places.get(lessons.get(text, text), len(places))] = 1.0
        return Embedded(vectors=vectors, usage=Usage(calls=1, tokens_in=10 * len(texts)))

    async def close(self) -> None:
        """Nothing is open."""


class Blind(Knowing):
    """Embeddings that know no wording: each text is near nothing."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        return Embedded(vectors=[[cos(n), sin(n), len(text) % 7 - 3.0] for n, text in enumerate(texts)])


KEY = "e-key-that-nobody-may-see"


class Silent(Knowing):
    async def embed(self, texts: Sequence[str]) -> Embedded:
        raise TransientError(f"nobody listens to {KEY} for {len(texts)} texts")


def given(monkeypatch: pytest.MonkeyPatch, embedder: Embedder) -> None:
    monkeypatch.setenv("COMBEE_EMBEDDING_MODEL", "openai/e")
    monkeypatch.setattr("combee.assembly.backends.embedder", lambda _: embedder)


def test_doctor_measures_the_embedding_model_and_proposes_its_threshold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, Knowing())
    told = run_json("doctor", "--embeddings")
    assert told["embedding_model"] == f"openai/e@{told['proposal']['meaning']}"
    assert 0 < told["proposal"]["meaning"] < 0.1, "all other lessons have a cosine of 0"
    assert told["labels"].keys() == set(LABELS)
    assert told["labels"]["paraphrase"]["yes"] > 100
    assert all(told["labels"][label]["yes"] == 0 for label in LABELS[1:])
    assert told["tokens"] > 1_000
    assert load_settings(embedding_model=told["embedding_model"]).model.embedding_model
    printed = run("doctor", "--embeddings").stdout
    assert f"set COMBEE_EMBEDDING_MODEL={told['embedding_model']}" in printed


def test_a_model_that_recognises_no_other_wording_gets_no_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, Blind())
    assert run_json("doctor", "--embeddings")["embedding_model"] == "openai/e"
    printed = run("doctor", "--embeddings").stdout
    assert "recognises hardly any other wording: give it no threshold" in printed
    assert "set COMBEE_EMBEDDING_MODEL=openai/e" in printed.splitlines()


def test_a_model_that_gives_no_vectors_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, Silent())
    monkeypatch.setenv("COMBEE_EMBEDDING_API_KEY", KEY)
    result = run("doctor", "--embeddings")
    assert result.exit_code == 1
    assert "no vectors: none of openai/e (nobody listens" in result.output
    assert "correct COMBEE_EMBEDDING_MODEL" in result.output
    assert KEY not in result.output


def test_without_an_embedding_model_there_is_nothing_to_measure() -> None:
    result = run("doctor", "--embeddings")
    assert result.exit_code == 2
    assert "set COMBEE_EMBEDDING_MODEL" in result.output
