import pytest

from combee.adapters.openai.names import NO_KEY, OPENAI_URL, Azure, Server, resolve_embedding, resolve_model
from combee.adapters.ports import FatalError
from support.rows import each_row

OLLAMA = "http://127.0.0.1:11434/v1"
VLLM = "http://gpu:8000/v1"
AZURE = Azure(endpoint="https://a.example", version="2024-10-21", key="az")
ON_AZURE = Server(url="https://a.example", key="az", azure_version="2024-10-21")


@each_row(
    ("model", "base_url", "expected"),
    [
        ("gpt-4.1-mini", None, ("gpt-4.1-mini", OPENAI_URL)),
        ("openai/gpt-4.1-mini", None, ("gpt-4.1-mini", OPENAI_URL)),
        ("openai:gpt-4.1-mini", "", ("gpt-4.1-mini", OPENAI_URL)),
        ("OpenAI/gpt-4.1-mini", None, ("gpt-4.1-mini", OPENAI_URL)),
        ("ollama/llama3", None, ("llama3", OLLAMA)),
        ("ollama:llama3:8b", None, ("llama3:8b", OLLAMA)),
        ("ollama/llama3", "http://other:1/v1", ("llama3", "http://other:1/v1")),
        ("openai/my-model", VLLM, ("my-model", VLLM)),
        ("meta-llama/Llama-3", VLLM, ("meta-llama/Llama-3", VLLM)),
        ("llama3:8b", VLLM, ("llama3:8b", VLLM)),
        ("openai/openai/gpt-oss-20b", VLLM, ("openai/gpt-oss-20b", VLLM)),
        (" gpt-4.1 ", " http://gpu:8000/v1 ", ("gpt-4.1", VLLM)),
    ],
)
def test_a_model_string_says_which_name_to_ask_for_and_where(
    model: str, base_url: str | None, expected: tuple[str, str]
) -> None:
    name, url = expected
    assert resolve_model(model, base_url, "k") == (name, Server(url=url, key="k"))


def test_a_key_from_a_file_loses_its_line_break() -> None:
    assert resolve_model("gpt", None, "sk-1\n")[1].key == "sk-1"


def test_a_server_without_keys_gets_a_placeholder() -> None:
    assert resolve_model("ollama/llama3", None, None)[1].key == NO_KEY


@each_row(
    ("model", "base_url", "api_key", "remedy"),
    [
        ("", None, "k", "COMBEE_MODEL"),
        ("gpt", None, None, "OPENAI_API_KEY"),
        ("gpt", None, " \n", "OPENAI_API_KEY"),
        ("gpt", "localhost:8000/v1", "k", "OPENAI_BASE_URL"),
        ("gpt", "http:///v1", "k", "OPENAI_BASE_URL"),
        ("gpt", "http://gpu:99999/v1", "k", "OPENAI_BASE_URL"),
        ("gpt", "http://[::1/v1", "k", "OPENAI_BASE_URL"),
        ("gpt", None, "sk-1\nsk-2", "OPENAI_API_KEY"),
        ("gpt", None, "sk-ключ", "OPENAI_API_KEY"),
    ],
)
def test_bad_configuration_is_fatal_and_names_the_remedy(
    model: str, base_url: str | None, api_key: str | None, remedy: str
) -> None:
    with pytest.raises(FatalError, match=remedy) as raised:
        resolve_model(model, base_url, api_key)
    assert not api_key or not api_key.strip() or api_key.strip() == "k" or api_key not in str(raised.value)


@each_row(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.8.0.1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://localhost/v1", True),
        ("http://localhost.example/v1", False),
        ("http://10.0.0.1/v1", False),
        (OPENAI_URL, False),
    ],
)
def test_loopback_is_told_from_the_world(url: str, loopback: bool) -> None:  # noqa: FBT001 - a table's column
    assert Server(url=url).is_loopback is loopback


# ---- of embeddings


def embedding(name: str, **given: str | None) -> tuple[str, Server]:
    nothing = dict.fromkeys(("base_url", "api_key", "model", "model_url", "model_key"))
    return resolve_embedding(name, azure=AZURE, **{**nothing, **given})


@each_row(
    ("name", "given", "expected"),
    [
        ("small", {"model": "gpt", "model_url": VLLM, "model_key": "k"}, ("small", VLLM, "k")),
        ("nomic", {"model": "ollama/llama3"}, ("nomic", OLLAMA, NO_KEY)),
        ("openai/small", {"model": "openai/gpt", "model_key": "k"}, ("small", OPENAI_URL, "k")),
        ("small", {"model": "gpt", "model_key": "k", "api_key": "e"}, ("small", OPENAI_URL, "e")),
        ("small", {"model": "gpt", "model_key": "k", "base_url": VLLM}, ("small", VLLM, NO_KEY)),
        ("ollama/nomic", {"model": "openai/gpt", "model_key": "k"}, ("nomic", OLLAMA, NO_KEY)),
    ],
    ids=["its server", "its provider", "both named", "own key", "own server", "other provider"],
)
def test_embeddings_are_the_models_servers_business_and_its_key_goes_nowhere_else(
    name: str, given: dict[str, str | None], expected: tuple[str, str, str]
) -> None:
    known, url, key = expected
    assert embedding(name, **given) == (known, Server(url=url, key=key))


def test_an_embedding_model_that_cannot_be_asked_is_named_with_its_settings() -> None:
    with pytest.raises(FatalError, match=r"COMBEE_EMBEDDING_MODEL=openai/small .*COMBEE_EMBEDDING_API_KEY"):
        embedding("openai/small", model="ollama/llama3", model_key="k")


# ---- of Azure


def test_azures_variables_say_where_a_deployment_is_and_openais_key_does_not_go_there() -> None:
    assert resolve_model("azure/small", None, "sk-of-openai", AZURE) == ("small", ON_AZURE)
    unlocked = Azure(endpoint=AZURE.endpoint, version=AZURE.version)
    assert resolve_model("azure:small", "", "sk-of-openai", unlocked)[1].key == NO_KEY


def test_a_server_that_is_named_keeps_names_that_begin_as_azures_do() -> None:
    assert resolve_model("azure/small", VLLM, "k", AZURE) == ("azure/small", Server(url=VLLM, key="k"))


@each_row(
    ("azure", "remedy"),
    [
        (Azure(version="1"), "AZURE_OPENAI_ENDPOINT"),
        (Azure(endpoint="https://a.example"), "OPENAI_API_VERSION"),
        (Azure(endpoint="a.example", version="1"), "AZURE_OPENAI_ENDPOINT"),
        (Azure(endpoint="https://a.example", version="1", key="ключ"), "AZURE_OPENAI_API_KEY"),
    ],
)
def test_what_is_missing_for_azure_is_named(azure: Azure, remedy: str) -> None:
    with pytest.raises(FatalError, match=remedy):
        resolve_model("azure/small", None, "k", azure)


@each_row(
    ("name", "given", "expected"),
    [
        ("azure/small", {"model": "gpt", "model_key": "k"}, ("small", ON_AZURE)),
        ("small", {"model": "azure/gpt"}, ("small", ON_AZURE)),
        ("ollama/nomic", {"model": "azure/gpt"}, ("nomic", Server(url=OLLAMA))),
        ("small", {"model": "azure/gpt", "base_url": VLLM}, ("small", Server(url=VLLM))),
        (
            "small",
            {"model": "azure/gpt", "model_url": VLLM, "model_key": "k"},
            ("small", Server(url=VLLM, key="k")),
        ),
    ],
)
def test_embeddings_are_on_azure_where_the_name_or_the_model_says_so(
    name: str, given: dict[str, str | None], expected: tuple[str, Server]
) -> None:
    assert embedding(name, **given) == expected
