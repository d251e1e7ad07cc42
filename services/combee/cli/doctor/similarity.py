"""``combee doctor --embeddings``: labelled pairs at the embedding model's server, and the threshold that follows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from combee.adapters.ports import ConfigurationError, TransientError
from combee.assembly import backends
from combee.core.text.forms import printable
from combee.core.text.similarity.embeddings import Thresholds, cosine_of, model_and_thresholds, unit
from combee.core.text.similarity.measuring import Proposal, Verdicts, proposed, verdicts
from combee.log.evaluation.labelled_pairs import labelled_pairs
from combee.process.settings.model import ModelSettings
from combee.process.worker.vectors import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The proposed threshold of an embedding model, and the verdicts with it."""

    model: str
    proposal: Proposal
    labels: Sequence[Verdicts]
    tokens: int
    """Tokens that the measurement cost."""

    @property
    def setting(self) -> str:
        """The model as the setting names it: with its threshold, unless it recognises hardly any other wording."""
        return f"{self.model}@{self.proposal.meaning}" if self.proposal.is_useful else self.model

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        labels = {verdict.label: asdict(verdict) for verdict in self.labels}
        return {
            "embedding_model": self.setting,
            "proposal": asdict(self.proposal),
            "labels": labels,
            "tokens": self.tokens,
        }

    def print(self, console: Console) -> None:
        """Print the verdicts for each label, and the setting."""
        console.print(
            f"{escape(printable(self.model))}, threshold {self.proposal.meaning}; {self.tokens:,} tokens",
            soft_wrap=True,
        )
        for told in self.labels:
            shares = "   ".join(
                f"{verdict} {count / max(1, told.pairs):5.1%}"
                for verdict, count in (("yes", told.yes), ("no", told.no), ("ask", told.ask))
            )
            console.print(f"{told.label:<11}{told.pairs:>4} pairs   {shares}", soft_wrap=True)
        if not self.proposal.is_useful:
            console.print("it recognises hardly any other wording: give it no threshold", soft_wrap=True)
        console.print(f"set COMBEE_EMBEDDING_MODEL={escape(printable(self.setting))}", soft_wrap=True)


async def measured(settings: ModelSettings) -> Measured:
    """Measure the labelled pairs at the configured embedding model.

    Raises
    ------
    ConfigurationError
        If no embedding model is configured, or it cannot be asked.
    TransientError
        If it gives no vectors.
    """
    embedder = backends.embedder(settings)
    if embedder is None:
        raise ConfigurationError("no embedding model is configured: set COMBEE_EMBEDDING_MODEL")
    model, _ = model_and_thresholds(settings.embedding_model or "")
    pairs = labelled_pairs()
    try:
        embedded = await Vectors(embedder, model).of(
            text for pair in pairs for text in (pair.text, pair.lesson)
        )
    finally:
        await embedder.close()
    units = {text: own for text, vector in embedded.vectors.items() if (own := unit(vector))}
    if not all(text in units for pair in pairs for text in (pair.text, pair.lesson)):
        raise TransientError(f"no vectors: {embedded.by}")

    def cosine(text: str, lesson: str) -> float:
        return cosine_of(units[text], units[lesson])

    proposal = proposed(pairs, cosine)
    return Measured(
        model=model,
        proposal=proposal,
        labels=verdicts(pairs, cosine, Thresholds(meaning=proposal.meaning)),
        tokens=embedded.usage.tokens_in,
    )
