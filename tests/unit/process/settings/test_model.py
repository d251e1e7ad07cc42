"""Settings of the model."""

import pytest

from combee.assembly.backends import embedding_address
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings


def test_the_threshold_of_an_embedding_model_stands_with_it_and_no_server_is_told() -> None:
    settings = load_settings(embedding_model="ollama/nomic@0.87").model
    assert settings.embedding_model == "ollama/nomic@0.87"
    assert embedding_address(settings)[0] == "nomic"


def test_a_threshold_that_no_cosine_can_have_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"COMBEE_EMBEDDING_MODEL: .*1\.5 is not a threshold"):
        load_settings(embedding_model="e@1.5")
