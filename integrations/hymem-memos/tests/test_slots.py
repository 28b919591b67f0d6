"""Where the writer's name may stand in MemOS's configuration, and where it may not."""

from __future__ import annotations

import json

import pytest
from memos_bank import general_text, hy_memory, installed, memory_list, openai, reader, said
from packaging.version import Version

import hymem_memos
from hymem import HymemError, SettingsError

GRAPH = {"uri": "bolt://127.0.0.1:1", "embedding_dimension": 384}
GRAPH |= {"user": "x", "password": "x", "db_name": "x"}


@pytest.fixture(autouse=True)
def _registered():
    hymem_memos.register()


def mos_config(main, *, writes, chats, place, scheduler=False):
    settings = {"act_mem_update_interval": 30, "context_window_size": 5, "thread_pool_max_workers": 2}
    settings |= {"consume_interval_seconds": 1, "enable_parallel_dispatch": True}
    found = {
        "user_id": "ann",
        "session_id": "one",
        "chat_model": chats,
        "mem_reader": {"backend": "simple_struct", "config": reader(main, writes)},
        "user_manager": {"backend": "sqlite", "config": {}},
        "enable_textual_memory": True,
        "enable_activation_memory": False,
        "enable_mem_scheduler": scheduler,
    }
    if scheduler:
        found["mem_scheduler"] = {"backend": "general_scheduler", "config": settings}
    path = place / "mos.json"
    path.write_text(json.dumps(found))
    return path


def mos(path, place):
    from memos.configs.mem_os import MOSConfig
    from memos.mem_os.core import MOSCore
    from memos.mem_user.user_manager import UserManager

    users = UserManager(db_path=str(place / "users.db"), user_id="ann")
    return MOSCore(MOSConfig.from_json_file(str(path)), user_manager=users)


@pytest.mark.hymem_short
def test_a_mos_of_a_file_with_its_scheduler_on(hymem_writer, hymem_main, tmp_path, events):
    """Up to 2.0.9 no configuration keeps the scheduler's questions from the mem reader's LLM."""
    path = mos_config(
        hymem_main, writes=hy_memory(hymem_writer), chats=openai(hymem_main), place=tmp_path, scheduler=True
    )
    made = mos(path, tmp_path)
    intent = {"trigger_retrieval": False, "evidences": [], "missing_evidences": []}
    try:
        hymem_main.reply(None, json.dumps(intent))
        monitor = made.mem_scheduler.monitor
        assert monitor.detect_intent(q_list=["What is tea?"], text_working_memory=["tea"]) == intent
        assert len(hymem_main.chats) == 1
        assert hymem_writer.chats == []
        hymem_writer.reply(None, memory_list("Lives in Oslo"))
        info = {"user_id": "ann", "session_id": "one"}
        made.mem_reader.get_memory([said("I live in Oslo.")], type="chat", info=info)
        assert [event.site for event in events] == ["memos.extract"]
        assert len(hymem_main.chats) == 1
    finally:
        made.mem_scheduler.stop()


def test_the_schedulers_questions_stay_when_it_is_enabled(hymem_writer, hymem_main, tmp_path):
    path = mos_config(
        hymem_main, writes=openai(hymem_main), chats=openai(hymem_main), place=tmp_path, scheduler=True
    )
    made = mos(path, tmp_path)
    try:
        hymem_memos.enable(base_url=hymem_writer.base_url)
        hymem_main.reply(
            None, json.dumps({"trigger_retrieval": False, "evidences": [], "missing_evidences": []})
        )
        made.mem_scheduler.monitor.detect_intent(q_list=["What is tea?"], text_working_memory=["tea"])
        assert len(hymem_main.chats) == 1
        assert hymem_writer.chats == []
    finally:
        made.mem_scheduler.stop()


@pytest.mark.skipif(installed < Version("2"), reason="from 2.0 on")
def test_a_deep_search_stays_with_the_main_model(hymem_writer, hymem_main):
    """It shares the general LLM with what writes."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory
    from memos.mem_agent.deepsearch_agent import QueryRewriter, ReflectionAgent

    hymem_main.reply(None, "What does Ann drink?")
    shared = hy_memory(hymem_writer, main_llm=openai(hymem_main))
    for given in (openai(hymem_main), shared):
        llm = LLMFactory.from_config(LLMConfigFactory.model_validate(given))
        hymem_memos.enable(base_url=hymem_writer.base_url)
        assert QueryRewriter(llm).run("and drink?", ["Ann"]) == "What does Ann drink?"
        ReflectionAgent(llm).run("What does Ann drink?", ["tea"])
    assert len(hymem_main.chats) == 4
    assert hymem_writer.chats == []


def test_the_writer_does_not_chat(hymem_writer, hymem_main, tmp_path):
    path = mos_config(hymem_main, writes=openai(hymem_main), chats=hy_memory(hymem_writer), place=tmp_path)
    with pytest.raises(SettingsError, match=r"chat_model.*mem_reader\.config\.llm"):
        mos(path, tmp_path)


@pytest.mark.skipif(installed < Version("2"), reason="from 2.0 on")
def test_the_writer_does_not_look_at_images(hymem_writer, hymem_main, caplog):
    from memos.configs.mem_reader import MultiModalStructMemReaderConfig
    from memos.mem_reader.multi_modal_struct import MultiModalStructMemReader

    given = reader(hymem_main, openai(hymem_main), image_parser_llm=hy_memory(hymem_writer))
    with pytest.raises(SettingsError, match="image_parser_llm"):
        MultiModalStructMemReader(MultiModalStructMemReaderConfig(**given))
    MultiModalStructMemReader(MultiModalStructMemReaderConfig(**reader(hymem_main, hy_memory(hymem_writer))))
    assert "set image_parser_llm" in caplog.text


def test_the_writer_does_not_search(hymem_writer, hymem_main):
    from memos.configs.memory import TreeTextMemoryConfig
    from memos.memories.textual.tree import TreeTextMemory

    given = {
        "extractor_llm": openai(hymem_main),
        "dispatcher_llm": hy_memory(hymem_writer),
        "embedder": reader(hymem_main, {})["embedder"],
        "graph_db": {"backend": "neo4j", "config": GRAPH},
    }
    with pytest.raises(SettingsError, match=r"dispatcher_llm.*extractor_llm"):
        TreeTextMemory(TreeTextMemoryConfig(**given))


@pytest.mark.skipif(installed < Version("1.0"), reason="its KV caches take any LLM")
def test_a_kv_cache_takes_models_of_its_own_only(hymem_writer):
    from memos.configs.memory import KVCacheMemoryConfig

    with pytest.raises(Exception, match="hy_memory"):
        KVCacheMemoryConfig(extractor_llm=hy_memory(hymem_writer))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"api_bse": "x"}, "api_base"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"api_key": ["sk-planted"]}, "api_key"),
        ({"main_llm": "openai"}, "main_llm"),
        ({"main_llm": {"backend": "openai", "config": {"api_key": "sk-planted"}}}, "main_llm"),
        ({"api_base": "127.0.0.1"}, "http"),
        ({"api_base": "http://h/v1", "base_url": "http://h/v1"}, "two names"),
        ({"on_failure": "fallback"}, "main_llm"),
        ({"main_llm": {"backend": "hy_memory", "config": {}}}, "writer itself"),
    ],
)
def test_settings_that_are_wrong(config, said):
    from memos.configs.llm import LLMConfigFactory

    with pytest.raises(HymemError, match=said) as raised:
        LLMConfigFactory(backend="hy_memory", config={"api_key": "sk-planted", **config})
    assert "sk-planted" not in str(raised.value)


def test_what_is_not_given_comes_from_the_environment(monkeypatch):
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    monkeypatch.setenv("HYMEM_MEMOS_MAX_TOKENS", "77")
    monkeypatch.setenv("HYMEM_BASE_URL", "http://127.0.0.1:9/v1")
    llm = LLMFactory.from_config(LLMConfigFactory(backend="hy_memory", config={"model_name_or_path": "mine"}))
    settings = llm.writer.settings
    assert (settings.max_tokens, settings.base_url, settings.model) == (77, "http://127.0.0.1:9/v1", "mine")
    assert (settings.temperature, llm.config.model_name_or_path) == (0.0, "mine")


def test_a_key_is_in_no_text(hymem_writer):
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    given = hy_memory(hymem_writer, api_key="sk-planted", default_headers={"x-team": "sk-planted"})
    configuration = LLMConfigFactory.model_validate(given)
    llm = LLMFactory.from_config(configuration)
    assert "sk-planted" not in repr(configuration) + repr(llm) + repr(llm.config)


@pytest.mark.hymem_short
def test_a_cube_is_dumped_and_loaded(hymem_writer, hymem_main, tmp_path, events):
    """Its `config.json` names the writer, and a cube is made of it again."""
    from memos.configs.mem_cube import GeneralMemCubeConfig
    from memos.mem_cube.general import GeneralMemCube

    hymem_writer.reply(None, memory_list("Lives in Oslo"))
    writes = hy_memory(hymem_writer, api_key="key-of-the-writer", timeout=33)
    configuration = {
        "user_id": "ann",
        "cube_id": "cube",
        "text_mem": {
            "backend": "general_text",
            "config": general_text(hymem_main, writes, tmp_path / "qdrant"),
        },
    }
    (tmp_path / "given.json").write_text(json.dumps(configuration))
    cube = GeneralMemCube(GeneralMemCubeConfig.from_json_file(str(tmp_path / "given.json")))
    cube.text_mem.add(cube.text_mem.extract(said("I live in Oslo.")))
    cube.dump(str(tmp_path / "cube"))
    cube.text_mem.vector_db.client.close()
    again = GeneralMemCube.init_from_dir(str(tmp_path / "cube"))
    assert [item.memory for item in again.text_mem.get_all()] == ["Lives in Oslo"]
    again.text_mem.extract(said("I live in Oslo."))
    assert [event.site for event in events] == ["memos.general-extract"] * 2
    assert {sent.headers["authorization"] for sent in hymem_writer.chats} == {"Bearer key-of-the-writer"}
    assert again.text_mem.extractor_llm.writer.settings.timeout == 33


def test_a_naive_memory(hymem_writer, hymem_main, events):
    """A fence is an error upstream."""
    from memos.configs.memory import NaiveTextMemoryConfig
    from memos.memories.textual.naive import NaiveTextMemory

    item = {"memory": "Lives in Oslo", "type": "fact"}
    hymem_writer.reply(None, f"```json\n{json.dumps([item])}\n```")
    memory = NaiveTextMemory(NaiveTextMemoryConfig(extractor_llm=hy_memory(hymem_writer)))
    (found,) = memory.extract(said("I live in Oslo."))
    assert (found.memory, found.metadata.type) == ("Lives in Oslo", "fact")
    assert events[0].steps == ("normalised",)


def test_a_backend_that_is_made_known_afterwards(hymem_writer, hymem_main):
    """With the start-up hook, everything is afterwards."""
    from memos.configs.llm import LLMConfigFactory, OpenAILLMConfig
    from memos.configs.memory import NaiveTextMemoryConfig
    from memos.llms.base import BaseLLM
    from memos.llms.factory import LLMFactory
    from memos.memories.textual.naive import NaiveTextMemory

    class House(BaseLLM):
        def __init__(self, config):
            self.config = config

        def generate(self, messages, **kwargs):
            return "[]"

        def generate_stream(self, messages, **kwargs):
            yield "[]"

    handle = hymem_memos.enable(base_url=hymem_writer.base_url)
    LLMConfigFactory.backend_to_class["house"] = OpenAILLMConfig
    LLMFactory.backend_to_class["house"] = House
    try:
        hymem_writer.reply(None, json.dumps([{"memory": "Lives in Oslo"}]))
        given = {**openai(hymem_main), "backend": "house"}
        memory = NaiveTextMemory(NaiveTextMemoryConfig(extractor_llm=given))
        assert [item.memory for item in memory.extract(said("I live in Oslo."))] == ["Lives in Oslo"]
        handle.disable()
        assert memory.extract(said("I live in Oslo.")) == []
    finally:
        del LLMConfigFactory.backend_to_class["house"], LLMFactory.backend_to_class["house"]


def test_code_that_no_catalogue_knows(hymem_writer, hymem_main, caplog):
    """It is asked by name, so it answers; and it is counted."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    hymem_writer.reply(None, "text")
    given = LLMConfigFactory.model_validate(hy_memory(hymem_writer))
    llm = LLMFactory.from_config(given)
    assert llm.generate(said("Hello.")) == "text"
    assert list(llm.generate_stream(said("Hello."))) == ["text"]
    assert llm.writer.stats().unknown_sites == 2
    assert "not in the catalogue" in caplog.text
