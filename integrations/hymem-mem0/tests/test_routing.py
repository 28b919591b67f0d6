"""Who is asked for what, as both servers saw it, in all the ways of switching it on."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import subprocess
import sys
import threading

import mem0
import pytest
from mem0.memory import main as mem0_main
from mem0.utils.factory import LlmFactory
from mem0_bank import ADDITIVE, SITES, WRITES, Bank, check_wire, facts_reply, is_decision, script
from pydantic import BaseModel

import hymem_mem0
from hymem import NoMainModel, SeamMissing, SettingsError, UnsupportedVersion, Writer
from hymem.integration import discover
from hymem_mem0 import HyMemoryLLM


def test_the_swap_by_configuration_alone(bank, swapped, hymem_writer, hymem_main, events):
    hymem_mem0.register()
    script(hymem_writer, "Lives in Oslo", "Has a cat")
    made = bank(swapped)
    added = made.add("I live in Oslo and have a cat.")
    assert {each["memory"] for each in added} == {"Lives in Oslo", "Has a cat"}
    assert made.all() == {"Lives in Oslo", "Has a cat"}
    assert "Lives in Oslo" in made.search("Where does she live, Oslo?")
    assert len(hymem_writer.chats) == WRITES
    assert hymem_main.chats == []
    assert [event.site for event in events] == SITES
    assert {event.outcome for event in events} == {"ok"}
    check_wire(hymem_writer, hymem_main)


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


def test_calls_that_do_not_write_stay_with_the_main_model(swapped, hymem_writer, hymem_main):
    hymem_mem0.register()
    memory = mem0.Memory.from_config(swapped)
    hymem_main.reply(None, "an answer")
    assert memory.llm.generate_response([{"role": "user", "content": "a question"}]) == "an answer"
    assert hymem_writer.requests == []
    (sent,) = hymem_main.chats
    assert sent.json["model"] == "users-own-model"
    assert "chat_template_kwargs" not in sent.json


def test_captions_stay_with_the_main_model(bank, swapped, hymem_writer, hymem_main):
    hymem_mem0.register()
    swapped["llm"]["config"] |= {"enable_vision": True, "vision_details": "auto"}
    script(hymem_writer, "Has a cat")
    hymem_main.reply(None, "a photo of a cat")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    bank(swapped).add([{"role": "user", "content": [image] if ADDITIVE else image}])
    assert len(hymem_main.chats) == 1
    assert "a photo of a cat" in hymem_writer.chats[0].text


def test_without_a_main_model_such_a_call_says_what_to_set(swapped, hymem_writer):
    hymem_mem0.register()
    del swapped["llm"]["config"]["main_llm"]
    memory = mem0.Memory.from_config(swapped)
    with pytest.raises(NoMainModel, match=r"llm\.config\.main_llm"):
        memory.llm.generate_response([{"role": "user", "content": "a question"}])
    script(hymem_writer, "Lives in Oslo")
    assert memory.add("I live in Oslo.", user_id="ann")["results"]


def test_raw_storing_and_reading_write_nothing(bank, swapped, hymem_writer):
    hymem_mem0.register()
    made = bank(swapped)
    made.add("stored as it is", infer=False)
    assert made.all() == {"stored as it is"}
    made.search("stored")
    assert hymem_writer.requests == []


def test_procedural_memory_is_a_write(swapped, hymem_writer, hymem_main, events):
    hymem_mem0.register()
    hymem_writer.reply(None, "## Summary\nThe agent opened the page.")
    memory = mem0.Memory.from_config(swapped)
    memory.add([{"role": "user", "content": "open it"}], agent_id="a", memory_type="procedural_memory")
    assert [event.site for event in events] == ["mem0.procedural"]
    assert len(hymem_writer.chats) == 1
    assert hymem_main.chats == []


# -- enable, attach, disable ---------------------------------------------------------------------


def test_enable_routes_objects_made_before_and_after(bank, config, hymem_writer, hymem_main, tmp_path):
    before = bank(config)
    own = before.memory.llm
    script(hymem_writer, "Lives in Oslo")
    with hymem_mem0.enable(base_url=hymem_writer.base_url, api_key="writers-key") as handle:
        before.add("I live in Oslo.")
        assert before.memory.llm is own  # outside a write it is what it was
        assert before.memory.llm.generate_response([{"role": "user", "content": "a question"}])
        assert len(hymem_writer.chats) == WRITES
        assert len(hymem_main.chats) == 1
        assert handle.stats().writes == WRITES
        assert all(handle.status().values())
        check_wire(hymem_writer, hymem_main)
    script(hymem_main, "Has a cat")
    before.add("I have a cat.")
    assert len(hymem_writer.chats) == WRITES
    assert len(hymem_main.chats) == 1 + WRITES


PLACES = [
    (cls, name)
    for cls in (mem0_main.Memory, mem0_main.AsyncMemory)
    for name in ("_add_to_vector_store", "_create_procedural_memory", "llm")
]


def snapshot():
    missing = object()
    places = [vars(owner).get(name, missing) for owner, name in PLACES]
    from mem0.llms.configs import LlmConfig

    places += [
        LlmConfig.validate_config.__func__.__code__,
        getattr(mem0_main, "get_update_memory_messages", None),
    ]
    return [None if each is missing else each for each in places], dict(LlmFactory.provider_to_class)


@pytest.mark.parametrize("enable", [hymem_mem0.register, hymem_mem0.enable])
def test_disabling_puts_everything_back_by_identity(enable):
    before, registry = snapshot()
    handle = enable()
    changed, _ = snapshot()
    assert any(new is not old for new, old in zip(changed, before, strict=True))
    assert "hy_memory" in LlmFactory.provider_to_class
    assert handle.disable() == []
    after, registry_after = snapshot()
    assert all(new is old for new, old in zip(after, before, strict=True))
    assert registry_after == registry
    assert handle.disable() == []
    assert not handle.active


def test_twice_is_the_same_and_other_settings_have_to_be_meant():
    assert hymem_mem0.register() is hymem_mem0.register()
    handle = hymem_mem0.enable(model="a")
    assert hymem_mem0.enable(model="a") is handle
    with pytest.raises(SettingsError, match="replace=True"):
        hymem_mem0.enable(model="b")
    other = hymem_mem0.enable(model="b", replace=True)
    assert not handle.active
    assert other.writer.settings.model == "b"


def test_registering_and_enabling_do_not_undo_each_other(swapped):
    registered = hymem_mem0.register()
    hymem_mem0.enable().disable()
    assert all(registered.status().values())
    mem0.Memory.from_config(swapped)
    hymem_mem0.enable()
    registered.disable()
    assert all(hymem_mem0.enable().status().values())


def test_a_later_wrapper_is_left_and_ours_below_it_is_inert(config, hymem_writer, hymem_main, monkeypatch):
    handle = hymem_mem0.enable(base_url=hymem_writer.base_url)
    ours = mem0_main.Memory._add_to_vector_store
    called = []

    def wrapper(self, *args, **kwargs):
        called.append(1)
        return ours(self, *args, **kwargs)

    original = ours.__wrapped__
    mem0_main.Memory._add_to_vector_store = wrapper
    try:
        (left,) = handle.disable()
        assert "_add_to_vector_store" in left.name
        script(hymem_main, "Lives in Oslo")
        mem0.Memory.from_config(config).add("I live in Oslo.", user_id="ann")
        assert called
        assert hymem_writer.requests == []
        assert len(hymem_main.chats) == WRITES
    finally:
        mem0_main.Memory._add_to_vector_store = original


def test_attach_routes_one_object_and_lets_go_of_it(bank, config, hymem_writer, hymem_main, tmp_path):
    one, writer = bank(config), Writer(base_url=hymem_writer.base_url, framework="mem0")
    config["vector_store"]["config"]["path"] = str(tmp_path / "other")
    other = bank(config)
    own = one.memory.llm
    script(hymem_writer, "Lives in Oslo")
    script(hymem_main, "Has a cat")
    handle = hymem_mem0.attach(one.memory, writer)
    assert isinstance(one.memory.llm, HyMemoryLLM)
    with pytest.raises(SettingsError, match="already"):
        hymem_mem0.attach(one.memory, writer)
    one.add("I live in Oslo.")
    other.add("I have a cat.")
    assert len(hymem_writer.chats) == len(hymem_main.chats) == WRITES
    assert handle.stats().writes == WRITES
    assert handle.disable() == []
    assert one.memory.llm is own
    with pytest.raises(TypeError, match=r"mem0\.Memory"):
        hymem_mem0.attach(object())


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


def test_a_cancelled_add_is_counted_as_one(swapped, hymem_writer, events):
    hymem_mem0.register()
    script(hymem_writer, "Lives in Oslo")
    hymem_writer.reply(None, facts_reply("Lives in Oslo"), delay=1.0)
    memory = Bank(mem0.AsyncMemory, swapped).memory

    async def given_up():
        task = asyncio.ensure_future(memory.add("I live in Oslo.", user_id="ann"))
        while not hymem_writer.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(given_up())  # and waits for the thread
    assert [event.outcome for event in events] == ["cancelled"]


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


def test_what_does_not_fit_is_an_error_and_changes_nothing(monkeypatch):
    before, registry = snapshot()

    def refuses(error, said):
        for switch in (hymem_mem0.register, hymem_mem0.enable):
            with pytest.raises(error, match=said):
                switch()
            now, registry_now = snapshot()
            assert all(new is old for new, old in zip(now, before, strict=True))
            assert registry_now == registry

    real = importlib.metadata.version
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "0.1.50" if name == "mem0ai" else real(name))
        refuses(UnsupportedVersion, "0.1.118")
    with monkeypatch.context() as patch:
        patch.setattr("hymem.__version__", "0.2.0")
        refuses(UnsupportedVersion, "hymem==0.1")
    with monkeypatch.context() as patch:
        patch.setattr(mem0_main.AsyncMemory, "_add_to_vector_store", None)
        patch.delattr(mem0_main.AsyncMemory, "_add_to_vector_store")
        with pytest.raises(SeamMissing, match=r"AsyncMemory\._add_to_vector_store"):
            hymem_mem0.register()
    now, registry_now = snapshot()
    assert all(new is old for new, old in zip(now, before, strict=True))
    assert registry_now == registry


def test_a_newer_version_works_if_its_seams_are_there(monkeypatch, caplog):
    real = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.0" if name == "mem0ai" else real(name))
    with caplog.at_level("INFO"):
        assert all(hymem_mem0.register().status().values())
    assert "newer" in caplog.text


def test_without_metadata_the_version_is_unknown_and_the_seams_decide(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert all(hymem_mem0.register().status().values())


def test_the_installed_integration_is_found():
    assert discover()["mem0"] == "hymem_mem0"


FRESH = """
import json, sys
{first}
import hymem_mem0
{second}
hymem_mem0.register()
from mem0 import Memory
memory = Memory.from_config(json.loads(sys.argv[1]))
assert memory.add("I live in Oslo.", user_id="ann")["results"][0]["memory"] == "Lives in Oslo"
print("done")
"""


@pytest.mark.parametrize(("first", "second"), [("import mem0", ""), ("", "import mem0"), ("", "")])
def test_in_a_fresh_process_whichever_is_imported_first(swapped, hymem_writer, first, second):
    script(hymem_writer, "Lives in Oslo")
    code = FRESH.format(first=first, second=second)
    command = [sys.executable, "-c", code, json.dumps(swapped)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip().endswith("done"), done.stderr


def test_importing_the_integration_loads_nothing():
    code = (
        "import sys; before = set(sys.modules); import hymem_mem0; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hymem_mem0"]


# -- at once -------------------------------------------------------------------------------------


def test_threads_write_for_their_own_user(swapped, hymem_writer, hymem_main):
    hymem_mem0.register()
    words = [f"pet{n}" for n in range(8)]
    for word in words:
        script_for(hymem_writer, word)
    made = Bank(mem0.Memory, swapped)
    failed = []

    def work(word):
        try:
            made.add(f"I have a {word} .", user=word)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    check_banks(made, words)
    assert hymem_main.chats == []


def check_banks(made, words):
    """Each fact in the bank of the user who said it. Mem0 1.0's local store loses some writes of
    threads that come at once, with an error in its log; a fact is never in another's bank."""
    for word in words:
        assert made.all(word) <= {f"Has a {word}"}
    if ADDITIVE:
        assert all(made.all(word) for word in words)


def script_for(proxy, word):
    fact = f"Has a {word}"
    proxy.reply(f"a {word} .", facts_reply(fact))
    if not ADDITIVE:
        decision = json.dumps({"memory": [{"id": "0", "text": fact, "event": "ADD"}]})
        proxy.reply(lambda body: is_decision(body) and fact in str(body["messages"]), decision)


def test_tasks_write_for_their_own_user(swapped, hymem_writer, hymem_main):
    hymem_mem0.register()
    words = [f"pet{n}" for n in range(8)]
    for word in words:
        script_for(hymem_writer, word)
    made = Bank(mem0.AsyncMemory, swapped)

    async def all_at_once():
        adds = [
            made.memory.add([{"role": "user", "content": f"I have a {word} ."}], user_id=word)
            for word in words
        ]
        await asyncio.gather(*adds)

    asyncio.run(all_at_once())
    check_banks(made, words)
    assert hymem_main.chats == []
