"""LangChain's own tests of a chat model."""

from __future__ import annotations

import dataclasses

import pytest
from langchain_memory import HAS_STANDARD_TESTS

if not HAS_STANDARD_TESTS:
    pytest.skip("langchain-tests is not in this cell", allow_module_level=True)

from langchain_core.load import dumpd, load
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from hymem_langchain import ChatHyMemory, models

REPEATS = pytest.mark.xfail(reason="the small model repeats its call", strict=False)
URL = "http://127.0.0.1:8000/v1"


class TestUnits(ChatModelUnitTests):
    @property
    def chat_model_class(self):
        return ChatHyMemory

    @property
    def chat_model_params(self):
        return {"model": "hy-memory", "base_url": URL}

    @property
    def init_from_env_params(self):
        environment = {"HYMEM_API_KEY": "sk-planted", "HYMEM_BASE_URL": URL}
        return environment, {}, {"openai_api_key": "sk-planted", "openai_api_base": URL}

    @pytest.mark.xfail(reason='its allowed_objects="all" are the classes of LangChain itself')
    def test_serdes(self, model, snapshot):
        super().test_serdes(model, snapshot)

    def test_it_is_restored(self, model):
        made = load(dumpd(model), valid_namespaces=["hymem_langchain"], allowed_objects=[ChatHyMemory])
        assert made.dict() == model.dict()


@pytest.mark.hymem_real
class TestIntegration(ChatModelIntegrationTests):
    """On a real server, with all that a model of text can be asked for switched on."""

    @pytest.fixture(autouse=True)
    def _server(self, hymem_server, hymem_writer, monkeypatch):
        if not hymem_server.real:
            pytest.skip("the double says nothing of its own")
        monkeypatch.setenv("HYMEM_BASE_URL", hymem_writer.base_url)
        monkeypatch.setenv("HYMEM_MAX_TOKENS_IF_CUT", "160")
        # A small model comes to an end on one processor and not on another; these want any text.
        of_any_end = dataclasses.replace(models.ASKED.contract, whole=False)
        asked = dataclasses.replace(models.ASKED, contract=of_any_end)
        monkeypatch.setattr(models, "ASKED", asked)

    @property
    def chat_model_class(self):
        return ChatHyMemory

    @property
    def chat_model_params(self):
        """What helps a model of 135 million parameters to stop."""
        return {"max_tokens": 160, "extra_body": {"repetition_penalty": 1.1}}

    @property
    def supports_json_mode(self):
        return True

    # A model of 135 million parameters calls a function several times, where these want one call.

    @REPEATS
    def test_tool_calling(self, model):
        super().test_tool_calling(model)

    @REPEATS
    async def test_tool_calling_async(self, model):
        await super().test_tool_calling_async(model)

    @REPEATS
    def test_tool_calling_with_no_arguments(self, model):
        super().test_tool_calling_with_no_arguments(model)
