"""Who is asked for what, as both servers saw it, in all the ways of switching it on."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import mem0
import pytest
from mem0.utils import factory
from mem0_bank import ADDITIVE, WRITES, script
from pydantic import BaseModel

import hymem_mem0
from hymem import HymemError, SettingsError, scope
from hymem.frameworks import discover


def test_what_mem0_asks_for_is_what_is_sent(bank, swapped, hymem_writer):
    hymem_mem0.register()
    script(hymem_writer, "Lives in Oslo")
    bank(swapped).add("I live in Oslo.")
    first = hymem_writer.chats[0].json
    assert first["response_format"] == {"type": "json_object"}
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert "I live in Oslo." in first["messages"][1]["content"]
    assert set(first) == {
        *("model", "messages", "temperature", "max_tokens", "response_format", "chat_template_kwargs")
    }


def test_captions_stay_with_the_main_model(bank, swapped, hymem_writer, hymem_main):
    hymem_mem0.register()
    swapped["llm"]["config"] |= {"enable_vision": True, "vision_details": "auto"}
    script(hymem_writer, "Has a cat")
    hymem_main.reply(None, "a photo of a cat")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    bank(swapped).add([{"role": "user", "content": [image] if ADDITIVE else image}])
    assert len(hymem_main.chats) == 1
    assert "a photo of a cat" in hymem_writer.chats[0].text


def test_raw_storing_and_reading_write_nothing(bank, swapped, hymem_writer):
    hymem_mem0.register()
    made = bank(swapped)
    made.add("stored as it is", infer=False)
    assert made.all() == {"stored as it is"}
    made.search("stored")
    assert hymem_writer.requests == []


def test_a_reranker_stays_with_the_main_model(bank, swapped, hymem_writer, hymem_main, main_llm):
    if not hasattr(factory, "RerankerFactory"):
        pytest.skip("0.1 has no reranker")
    hymem_mem0.register()
    swapped["reranker"] = {"provider": "llm_reranker", "config": {"llm": main_llm}}
    script(hymem_writer, "Lives in Oslo", "Has a cat")
    made = bank(swapped)
    made.add("I live in Oslo and have a cat.")
    hymem_main.reply(None, "0.7")
    made.search("Where?", rerank=True)
    assert len(hymem_main.chats) == 2  # one a memory
    assert len(hymem_writer.chats) == WRITES


@pytest.mark.parametrize(
    "form", [{"llm": {"provider": "hy_memory", "config": {}}}, {"provider": "hy_memory"}]
)
def test_a_reranker_that_has_no_model_is_refused_when_it_is_made(bank, swapped, form):
    """Asked, it would rank every memory 0.5 without a word."""
    if not hasattr(factory, "RerankerFactory"):
        pytest.skip("0.1 has no reranker")
    hymem_mem0.register()
    swapped["reranker"] = {"provider": "llm_reranker", "config": form}
    with pytest.raises(SettingsError, match="main_llm"):
        bank(swapped)


# -- procedural memory ---------------------------------------------------------------------------

STEPS = [
    {"role": "user", "content": "Open the page."},
    {"role": "system", "content": "Be brief."},
    {"role": "tool", "content": "200 OK", "tool_call_id": "1"},
]


@pytest.fixture
def remember_steps(bank, swapped):
    """Has a procedural memory made, and returns what `add` does."""
    hymem_mem0.register()

    def remember(**writer):
        swapped["llm"]["config"]["writer"] |= writer
        made = bank(swapped)
        if inspect.iscoroutinefunction(made.memory.add) and version("mem0ai") < "2.0.12":
            pytest.importorskip("langchain_core", reason="Mem0 before 2.0.12 needs it for this, if async")
        add = made.memory.add(STEPS, agent_id="a", memory_type="procedural_memory")
        return made._run(add)["results"]

    return remember


def test_procedural_memory_is_a_write(remember_steps, hymem_writer, hymem_main, events):
    hymem_writer.reply(None, "<think>well</think>## Summary\nThe agent opened the page.")
    (made,) = remember_steps()
    assert made["memory"] == "## Summary\nThe agent opened the page."
    (event,) = events
    assert (event.site, event.outcome) == ("mem0.procedural", "ok")
    assert event.steps == ("normalised", "reshaped")
    (sent,) = hymem_writer.chats
    assert [message["role"] for message in sent.json["messages"]] == [
        "system",
        "user",
        "user",
        "user",
        "user",
    ]
    assert "[result of 1: 200 OK]" in sent.text
    assert "response_format" not in sent.json
    assert sent.json["max_tokens"] == 2000  # Mem0's own: prose may be as long as it says
    assert hymem_main.chats == []


@pytest.mark.parametrize("said", ["", "<think>well"])
@pytest.mark.parametrize("on_failure", ["raise", "skip"])
def test_a_procedural_memory_of_nothing_is_an_error(remember_steps, hymem_writer, events, said, on_failure):
    """There is no text that would leave things as they are, so `skip` raises, too."""
    hymem_writer.reply(None, said)
    with pytest.raises(HymemError):
        remember_steps(on_failure=on_failure)
    assert [event.outcome for event in events] == ["failed"]


# -- enable, attach, disable ---------------------------------------------------------------------


def test_registering_and_enabling_do_not_undo_each_other(swapped):
    registered = hymem_mem0.register()
    hymem_mem0.enable().disable()
    assert all(registered.status().values())
    mem0.Memory.from_config(swapped)
    hymem_mem0.enable()
    registered.disable()
    assert all(hymem_mem0.enable().status().values())


def test_what_wraps_an_attached_llm_is_left_and_ours_in_it_is_inert(config, hymem_writer, hymem_main):
    hymem_mem0.register()
    memory = mem0.Memory.from_config(config)
    handle = hymem_mem0.attach(memory, base_url=hymem_writer.base_url)
    assert memory.llm.client is not None  # what an application uses of its LLM is still there

    class Wrapper:
        def __init__(self, inner):
            self.config = inner.config
            self.generate_response = inner.generate_response

    memory.llm = Wrapper(memory.llm)
    assert [left.name for left in handle.disable()] == ["memory.llm"]
    script(hymem_main, "Lives in Oslo")
    memory.add("I live in Oslo.", user_id="ann")
    assert hymem_writer.requests == []
    assert len(hymem_main.chats) == WRITES


def test_replacing_with_settings_that_cannot_work_leaves_the_old_ones_in_force(
    config, hymem_writer, hymem_main, tmp_path
):
    script(hymem_writer, "Lives in Oslo")
    handle = hymem_mem0.enable(base_url=hymem_writer.base_url)
    with pytest.raises(SettingsError):
        hymem_mem0.enable(record=tmp_path / "nowhere", replace=True)
    assert handle.active
    mem0.Memory.from_config(config).add("I live in Oslo.", user_id="ann")
    assert len(hymem_writer.chats) == WRITES
    assert hymem_main.chats == []


def test_an_objects_own_writer_is_nearer_than_the_process(swapped, hymem_writer, hymem_main):
    script(hymem_writer, "Lives in Oslo")
    hymem_mem0.enable(base_url="http://127.0.0.1:1/v1")
    mem0.Memory.from_config(swapped).add("I live in Oslo.", user_id="ann")
    assert len(hymem_writer.chats) == WRITES


def test_the_name_is_known_everywhere_a_configuration_is_checked(swapped):
    class Application(BaseModel):  # built before we come
        memory: mem0.configs.base.MemoryConfig

    hymem_mem0.register()
    Application(memory=swapped)
    mem0.configs.base.MemoryConfig(**swapped)
    with pytest.raises(ValueError, match="nope"):
        mem0.configs.base.MemoryConfig(**{**swapped, "llm": {"provider": "nope", "config": {}}})
    swapped["llm"]["provider"] = "hy-memory"
    mem0.Memory.from_config(swapped)


def test_the_installed_integration_is_found():
    assert discover()["mem0"] == "hymem_mem0"


def test_inside_a_write_of_another_framework(bank, swapped, hymem_writer, hymem_main):
    """A memory of LangChain, say, whose write searches Mem0: the scope that is open is not one of ours."""
    hymem_mem0.register()
    made = bank(swapped)
    hymem_main.reply(None, "an answer")
    with scope.writing("langchain.summary"):
        answer = made.memory.llm.generate_response([{"role": "user", "content": "a question"}])
    assert answer == "an answer"
    assert hymem_writer.chats == []
