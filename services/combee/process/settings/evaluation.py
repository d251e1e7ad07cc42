"""Settings of evaluation: the model that answers held-out questions, how answers are scored, and the cap."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from combee.core.evaluation.scoring import ScorerName
from combee.process.settings.group import SettingsGroup


class EvaluationSettings(SettingsGroup):
    """How ``combee evaluate`` judges a playbook; without a model of its own it asks the services' model."""

    eval_questions: Path | None = Field(
        None, description="file of held-out ACE samples (JSON lines), which playbooks must never learn from"
    )
    eval_scorer: ScorerName = Field("ace", description="how an answer is scored")
    eval_model: str | None = Field(None, description="model that answers the questions; unset: COMBEE_MODEL")
    eval_base_url: str | None = Field(None, description="URL of that model's server; unset: COMBEE_BASE_URL")
    eval_api_key: SecretStr | None = Field(
        None,
        description="API key of that model; unset: COMBEE_API_KEY, unless COMBEE_EVAL_BASE_URL is set;"
        " environment only",
    )
    eval_judge: str | None = Field(
        None, description="model of the scorer `judge`; unset: the model that answers"
    )
    eval_function: str | None = Field(
        None,
        pattern=r"^[\w.]+:[\w.]+$",
        description="function that scores instead of a model: `package.module:function`; environment or flag only",
    )
    eval_endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="URL of an endpoint that scores instead of a model, asked by POST",
    )
    eval_daily_tokens: int | None = Field(
        None, ge=1, description="cap on evaluations per playbook and day (tokens)"
    )

    @property
    def answers(self) -> Literal["function", "endpoint", "model"]:
        """Who answers."""
        if self.eval_function:
            return "function"
        return "endpoint" if self.eval_endpoint else "model"
