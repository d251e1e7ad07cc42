"""Settings of the language model."""

from pydantic import AliasChoices, Field, SecretStr, field_validator

from combee.core.text.similarity.embeddings import model_and_thresholds
from combee.process.settings.group import SettingsGroup


class ModelSettings(SettingsGroup):
    """The model and the limits of its use."""

    model: str | None = Field(
        None, description="the model, such as openai/gpt-4.1-mini, azure/DEPLOYMENT or ollama/llama3"
    )
    base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("base_url", "COMBEE_BASE_URL", "OPENAI_BASE_URL"),
        description="URL of any OpenAI-compatible server",
    )
    api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_API_KEY", "OPENAI_API_KEY"),
        description="API key of the model's server; environment only",
    )
    azure_endpoint: str | None = Field(
        None,
        validation_alias=AliasChoices("azure_endpoint", "COMBEE_AZURE_ENDPOINT", "AZURE_OPENAI_ENDPOINT"),
        description="address of azure/DEPLOYMENT, such as https://NAME.openai.azure.com",
    )
    azure_api_version: str | None = Field(
        None,
        validation_alias=AliasChoices("azure_api_version", "COMBEE_AZURE_API_VERSION", "OPENAI_API_VERSION"),
        description="version of Azure's API",
    )
    azure_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        description="API key for Azure; environment only; empty: the token of the Azure login (combee[azure])",
    )
    azure_ad_token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_AZURE_AD_TOKEN", "AZURE_OPENAI_AD_TOKEN"),
        description="Microsoft Entra token for Azure; environment only; wins over the key",
    )
    embedding_model: str | None = Field(
        None,
        description="embedding model by which texts are compared, such as openai/text-embedding-3-small;"
        " with the threshold that combee doctor --embeddings proposes for it: MODEL@0.9",
    )
    embedding_base_url: str | None = Field(
        None, description="URL of the embedding model's OpenAI-compatible server; empty: the model's"
    )
    embedding_api_key: SecretStr | None = Field(
        None,
        description="API key of the embedding model; environment only; empty: the model's key if both have"
        " one server",
    )
    model_timeout_s: float = Field(
        120, gt=0, description="time limit of one model call; raise it for a slow server (s)"
    )
    llm_concurrency: int = Field(
        8,
        ge=1,
        description="maximum number of concurrent model calls per worker: as many as the server answers"
        " without slowing down",
    )
    requests_per_minute: int | None = Field(
        None,
        ge=1,
        description="maximum number of model calls per minute and worker, as the provider limits them",
    )
    tokens_per_minute: int | None = Field(
        None, ge=1, description="maximum number of tokens per minute and worker, as the provider limits them"
    )

    @field_validator("embedding_model")
    @classmethod
    def _has_a_usable_threshold(cls, value: str | None) -> str | None:
        model_and_thresholds(value or "")
        return value
