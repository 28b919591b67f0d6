"""EverOS as people run it: `everos server start`, and its HTTP."""

from __future__ import annotations

import json

import pytest
from evermemos_bank import REFUSED, USERS_KEY, facts_reply
from everos_server import AT, VERSION, EverOS
from packaging.version import Version

from hymem_testing.proxy import Dropped

OSLO, BERGEN = "Ann lives in Oslo by the sea", "Ann has moved to Bergen"
WRITERS_KEY = "sk-writers-key"


def boundary_reply(*numbers, wait=False):
    return json.dumps({"reasoning": "r", "boundaries": list(numbers), "should_wait": wait})


def episode_reply(text, title="A talk"):
    return json.dumps({"title": title, "content": text, "summary": text})


def script(proxy, text=OSLO):
    """What a model says of each kind of request that a conversation makes."""
    proxy.reply(None, '{"explicit_info": [], "implicit_traits": []}')
    proxy.reply('"content"', episode_reply(text))
    proxy.reply("atomic_fact", facts_reply(f"{text}, a fact."))
    proxy.reply("foresights", '{"foresights": []}')
    proxy.reply("should_wait", boundary_reply())


@pytest.fixture
def writers(hymem_writer):
    return {"HYMEM_BASE_URL": hymem_writer.base_url, "HYMEM_API_KEY": WRITERS_KEY}


@pytest.mark.hymem_short
def test_the_stock_command_by_its_environment(tmp_path, writers, hymem_writer, hymem_main):
    """With `HYMEM_ENABLE`; a writer that is away between the add and the flush, and comes back."""
    script(hymem_writer)
    with EverOS(tmp_path / "root", hymem_main, environ={"HYMEM_ENABLE": "evermemos", **writers}) as everos:
        assert everos.add("I live in Oslo.", "By the sea, with a cat.")[0] == 200
        assert everos.flush()[1]["data"]["status"] == "extracted"
        assert OSLO in everos.markdown("episodes")
        everos.until(lambda: f"{OSLO}, a fact." in everos.markdown(".atomic_facts"))
        found = everos.until(lambda: everos.search("Oslo")["episodes"])
        assert OSLO in str(found)
        assert hymem_main.chats == []
        for sent in hymem_writer.chats:
            assert sent.json["temperature"] == 0.0
            assert sent.json["max_tokens"] == 4096
            assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
            assert sent.headers["authorization"] == f"Bearer {WRITERS_KEY}"
            assert USERS_KEY not in str(sent.headers) + sent.raw.decode()
        # The writer's server is killed between the add and the flush, and once more when the buffer is empty.
        assert everos.add("I have moved to Bergen.", session="two")[0] == 200
        hymem_writer.stop()
        assert everos.flush("two")[0] == 500
        hymem_writer.start()
        script(hymem_writer, BERGEN)
        hymem_writer.reply('"content"', answer=Dropped())
        assert everos.flush("two")[0] == 500
        assert everos.markdown("episodes").count(BERGEN) == 0
        hymem_writer.stop()
        hymem_writer.start()
        script(hymem_writer, BERGEN)
        # Where it has failed five times in a row, it is left alone for half a minute.
        assert everos.flush("two")[1]["data"]["status"] == "no_extraction"
        everos.until(lambda: BERGEN in everos.markdown("episodes") or not everos.flush("two"))
        everos.until(lambda: f"{BERGEN}, a fact." in everos.markdown(".atomic_facts"))
        assert everos.markdown("episodes").count(BERGEN) == everos.markdown("episodes").count(OSLO)
        assert list(everos.root.glob(".hymem/episodes/*")) == []
        assert hymem_main.chats == []


def test_a_table_in_its_own_file_and_replay(tmp_path, hymem_writer, hymem_main):
    """No `HYMEM_ENABLE`, and nothing of ours in the environment. What failed is counted by `status`, named by
    the doctor, and written by `replay` while the server is down."""
    script(hymem_writer)
    hymem_writer.reply('"content"', "no", status=503, body={})
    with EverOS(tmp_path / "root", hymem_main, table={"base_url": hymem_writer.base_url}) as everos:
        assert everos.add("I live in Oslo.")[0] == 200
        assert everos.flush()[0] == 500
        running = everos.hymem("replay", "evermemos")
        assert running.returncode == 2
        assert "an add or a flush there writes what is kept" in running.stderr
    kept = everos.hymem("status")
    assert "write(s) that failed wait" in kept.stdout, kept.stderr
    found = json.loads(everos.hymem("doctor", "evermemos", "--json").stdout)["findings"]
    assert "writes-kept" in {each["code"] for each in found}
    script(hymem_writer)
    done = everos.hymem("replay", "evermemos")
    assert (done.returncode, done.stdout) == (0, "nothing is left to write\n"), done.stderr
    assert "could not be" not in done.stderr
    assert OSLO in everos.markdown("episodes")
    assert f"{OSLO}, a fact." in everos.markdown(".atomic_facts")
    assert hymem_main.chats == []
    assert not any(USERS_KEY in str(sent.headers) for sent in hymem_writer.chats)


TOOL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"pattern": "timeout"}'}}
CASE = {
    "task_intent": "Find why a job times out",
    "approach": "1. Search the code for the timeout. 2. Raise it.",
    "quality_score": 0.9,
    "key_insight": "Read the {settings} first.",
}
STEPS = "\n".join(["## Steps", *(f"{at}. Read what was found." for at in range(5))])
SKILL = {
    "name": "Mend timeouts",
    "description": "How to",
    "content": STEPS,
    "confidence": 0.5,
}


def work(at):
    """A task that an agent has done with a tool, and that was put right by its user."""
    search = [
        ("assistant", "I search.", {"tool_calls": [TOOL]}),
        ("tool", "timeout = 3", {"tool_call_id": "c1"}),
    ]
    said = [
        ("user", "The job times out, find out why.", {}),
        *search * 3,
        ("user", "No, look at the {settings} too.", {}),
        ("assistant", "It is three seconds; I have set thirty.", {}),
    ]
    return [
        {"sender_id": "ann" if role == "user" else "helper", "role": role, "timestamp": at + number,
         "content": content, **more}
        for number, (role, content, more) in enumerate(said)
    ]  # fmt: skip


@pytest.mark.skipif(Version("1.5") > VERSION, reason="it stores vectors of 1024 numbers only")
def test_an_agents_server_with_an_embedder(tmp_path, writers, hymem_writer, hymem_main):
    """The default mode: cases and skills, beside what is kept of its users; and what is embedded stays."""
    script(hymem_writer, "Ann has had a job mended")
    hymem_writer.reply("has_exploration", '{"has_exploration": "true", "has_user_correction": "true"}')
    hymem_writer.reply("quality_score", json.dumps(CASE))
    added = {"operations": [{"action": "add", "data": SKILL}], "update_note": ""}
    hymem_writer.reply("update_note", json.dumps(added))
    hymem_writer.reply("should_wait", boundary_reply())
    environ = {"HYMEM_ENABLE": "evermemos", "HYMEM_ON_FAILURE": "raise", **writers}
    with EverOS(tmp_path / "root", hymem_main, embeds=True, mode="agent", environ=environ) as everos:
        for session in ("one", "two"):
            given = work(AT if session == "one" else AT + 10_000_000)
            assert everos.post("add", session_id=session, messages=given)[0] == 200
            assert everos.flush(session)[1]["data"]["status"] == "extracted"
            everos.until(lambda: "Read what was found." in everos.markdown("skills"))
        everos.until(lambda: "Read the {settings} first." in everos.markdown(".cases"))
        found = everos.until(lambda: everos.search("What was mended?", method="vector")["episodes"])
        assert "Ann has had a job mended" in str(found)
        everos.until(lambda: any("explicit_info" in sent.text for sent in hymem_writer.chats))
        assert hymem_main.chats == []
        everos.search("Which job was it?", method="llm_multiround")
    asked = [
        proxy for proxy in (hymem_main, hymem_writer) if any("Which job" in each.text for each in proxy.chats)
    ]
    assert asked == [hymem_main]
    assert all("Which job was it?" in sent.text for sent in hymem_main.chats)
    embedded = [sent for sent in hymem_main.requests if sent.path == "/v1/embeddings"]
    assert embedded
    assert all(sent.headers["authorization"] == f"Bearer {USERS_KEY}" for sent in embedded)
    assert not any(sent.path == "/v1/embeddings" for sent in hymem_writer.requests)


@pytest.mark.skipif(Version("1.5") > VERSION, reason="it has no queue of adds")
def test_an_add_that_nobody_waits_for(tmp_path, writers, hymem_writer, hymem_main):
    """It was answered with 202, and its messages are in no buffer when the writer is away."""
    script(hymem_writer)
    interval = {"EVEROS_MEMORIZE__ASYNC_QUEUE__SCAN_INTERVAL_SECONDS": "1"}
    environ = {"HYMEM_ENABLE": "evermemos", **writers, **interval}
    with EverOS(tmp_path / "root", hymem_main, environ=environ) as everos:
        hymem_writer.reply(None, answer=REFUSED)
        said = {"sender_id": "ann", "role": "user", "timestamp": AT, "content": "I live in Oslo."}
        assert everos.post("add", session_id="one", messages=[said], async_mode=True)[0] == 202
        everos.until(lambda: "1 write(s) that failed wait" in everos.hymem("status").stdout)
        hymem_writer.clear()
        script(hymem_writer)
        assert everos.add("Something else.", session="two")[0] == 200
        everos.until(lambda: any("I live in Oslo." in sent.text for sent in hymem_writer.chats))
        everos.until(lambda: everos.flush()[0] in (200, 202) and OSLO in everos.markdown("episodes"))
    assert "0 write(s)" in everos.hymem("status").stdout
    assert hymem_main.chats == []
