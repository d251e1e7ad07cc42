"""Settings of the language model."""

from pydantic import AliasChoices, Field, SecretStr

from combee.process.settings.group import Group


class ModelSettings(Group):
    """Which model, and how hard it may be worked."""

    model: str | None = Field(
        None, description="such as openai/gpt-4.1-mini, azure/DEPLOYMENT or ollama/llama3"
    )
    base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("base_url", "COMBEE_BASE_URL", "OPENAI_BASE_URL"),
        description="any OpenAI-compatible server",
    )
    api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_API_KEY", "OPENAI_API_KEY"),
        description="environment only",
    )
    azure_endpoint: str | None = Field(
        None,
        validation_alias=AliasChoices("azure_endpoint", "COMBEE_AZURE_ENDPOINT", "AZURE_OPENAI_ENDPOINT"),
        description="where azure/DEPLOYMENT is, such as https://NAME.openai.azure.com",
    )
    azure_api_version: str | None = Field(
        None,
        validation_alias=AliasChoices("azure_api_version", "COMBEE_AZURE_API_VERSION", "OPENAI_API_VERSION"),
        description="the version of Azure's interface",
    )
    azure_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        description="environment only; empty: the token of who is logged in (combee[azure])",
    )
    azure_ad_token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_AZURE_AD_TOKEN", "AZURE_OPENAI_AD_TOKEN"),
        description="environment only; goes before the key",
    )
    embedding_model: str | None = Field(
        None,
        description="finds near-duplicates for consolidations, such as openai/text-embedding-3-small",
    )
    embedding_base_url: str | None = Field(
        None, description="its OpenAI-compatible server; empty: the model's"
    )
    embedding_api_key: SecretStr | None = Field(
        None, description="environment only; empty: the model's, if the server is, too"
    )
    model_timeout_s: float = Field(120, gt=0, description="one model call (s); longer for a slow server")
    llm_concurrency: int = Field(
        8,
        ge=1,
        description="model calls at once per worker: as many as the server answers without slowing down",
    )
    requests_per_minute: int | None = Field(
        None, ge=1, description="per worker, where the provider limits them"
    )
    tokens_per_minute: int | None = Field(
        None, ge=1, description="per worker, where the provider limits them"
    )
