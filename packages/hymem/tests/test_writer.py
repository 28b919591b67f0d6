"""The writer as a user holds it: the model card's quickstart, events, statistics, the record."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import stat

import openai
import pytest

import hymem
from hymem import FREE_TEXT, MEMORIES, ReplyRejected, SettingsError, WriteCall, Writer, WriterUnavailable
from hymem.contract import RawReply

QUICKSTART = [
    {
        "role": "system",
        "content": "You extract long-term memories about the user from a conversation. Answer with a JSON "
        'object that has one key, "memories", with a list of strings: one short fact each.',
    },
    {
        "role": "user",
        "content": "My name is Alex and I live in Seattle, where I work as a software engineer. "
        "I prefer Python, and concise answers with code examples. I'm vegetarian.",
    },
]
GOOD = '{"memories": ["Lives in Oslo"]}'


@pytest.mark.hymem_real
def test_the_quickstart_through_the_plain_client(hymem_server):
    """What the model card shows, against the server itself."""
    with openai.OpenAI(base_url=hymem_server.base_url, api_key="EMPTY") as client:
        completion = client.chat.completions.create(
            model=hymem_server.served_model,
            messages=QUICKSTART,
            temperature=0.0,
            max_tokens=64,
            extra_body={"chat_template_kwargs": {"reasoning_effort": "no_think"}},
        )
        assert completion.choices[0].message.content
        assert completion.usage.prompt_tokens > 0
        if hymem_server.kind != "external":  # a server with the strict template checks it itself
            with pytest.raises(openai.BadRequestError, match="no_think"):
                client.chat.completions.create(
                    model=hymem_server.served_model, messages=QUICKSTART, temperature=0.0, max_tokens=512
                )


@pytest.mark.hymem_real
def test_the_quickstart_through_the_writer(hymem_writer):
    writer = Writer(
        base_url=hymem_writer.base_url,
        max_tokens=512,
        structured_output="always",
        extra_body={"repetition_penalty": 1.05},
    )
    reply = writer.write(WriteCall(QUICKSTART, contract=MEMORIES))
    assert reply.value
    words = " ".join(reply.value)
    assert any(word in words for word in ("Alex", "Seattle", "Python", "engineer", "vegetarian"))
    (sent,) = hymem_writer.chats
    assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
    assert sent.json["temperature"] == 0.0


@pytest.mark.hymem_model("hyv3-dummy")
def test_the_writers_request_reaches_the_real_templates_switch(hymem_server, hymem_writer):
    """On the hy_v3 code path thinking is off: the text is in `content`, where the writer reads it."""
    writer = Writer(base_url=hymem_writer.base_url, max_tokens=64, max_tokens_if_cut=64)
    of_any_end = dataclasses.replace(FREE_TEXT, whole=False)  # random weights never come to one
    reply = writer.write(WriteCall(QUICKSTART, contract=of_any_end, max_tokens=64))
    assert reply.text
    message = hymem_writer.chats[0].reply["choices"][0]["message"]
    assert message["content"]
    assert not message["reasoning"]


@pytest.fixture
def events():
    seen = []
    stop = hymem.observe(seen.append)
    yield seen
    stop()


def test_every_write_ends_in_one_event(hymem_writer, events):
    writer = Writer(base_url=hymem_writer.base_url, framework="mem0")
    hymem_writer.reply(None, GOOD)
    writer.write(WriteCall(QUICKSTART, MEMORIES, site="mem0.extract_facts"))
    hymem_writer.reply(None, "rubbish")
    with pytest.raises(ReplyRejected) as raised:
        writer.write(WriteCall(QUICKSTART, MEMORIES, site="mem0.decide"))
    assert raised.value.site == "mem0.decide"
    first, second = events
    assert (first.site, first.outcome, first.kept, first.requests) == ("mem0.extract_facts", "ok", 1, 1)
    assert (second.outcome, second.error, second.requests) == ("failed", "ReplyRejected", 2)
    assert (first.prompt_tokens, first.completion_tokens) == (7, 5)
    stats = writer.stats()
    assert stats.writes == 2
    assert stats.outcomes == {"ok": 1, "failed": 1}
    assert stats.requests == len(hymem_writer.requests) == 3
    assert stats.prompt_tokens == 21


def test_an_observer_that_fails_does_not_hurt_the_write(hymem_writer, caplog):
    def broken(event):
        raise ValueError

    stop = hymem.observe(broken)
    try:
        hymem_writer.reply(None, GOOD)
        assert Writer(base_url=hymem_writer.base_url).write(WriteCall(QUICKSTART, MEMORIES)).value
    finally:
        stop()
    assert "observer" in caplog.text


def test_failures_are_logged_at_powers_of_ten(hymem_writer, caplog):
    hymem_writer.reply(None, body={}, status=500)
    writer = Writer(base_url=hymem_writer.base_url, framework="x-powers")
    for _ in range(12):
        with pytest.raises(WriterUnavailable):
            writer.write(WriteCall(QUICKSTART, MEMORIES))
    errors = [record for record in caplog.records if record.name == "hymem.x-powers"]
    assert len(errors) == 2
    assert errors[0].levelno == logging.ERROR
    assert "10 times" in errors[1].getMessage()


def test_fallback_to_the_main_model(hymem_writer):
    hymem_writer.reply(None, body={}, status=500)
    writer = Writer(base_url=hymem_writer.base_url, on_failure="fallback")
    reply = writer.write(WriteCall(QUICKSTART, MEMORIES), main=lambda: RawReply(GOOD))
    assert reply.text == GOOD
    assert writer.stats().steps == {"fell_back": 1}


async def test_fallback_to_an_async_main_model(hymem_writer):
    hymem_writer.reply(None, body={}, status=500)
    writer = Writer(base_url=hymem_writer.base_url, on_failure="fallback")

    async def main():
        return RawReply(GOOD)

    assert (await writer.awrite(WriteCall(QUICKSTART, MEMORIES), main=main)).text == GOOD


def test_when_the_main_model_fails_too_the_writers_error_is_raised(hymem_writer):
    hymem_writer.reply(None, body={}, status=500)
    writer = Writer(base_url=hymem_writer.base_url, on_failure="fallback")

    def main():
        raise ZeroDivisionError("quotes the prompt")

    with pytest.raises(WriterUnavailable, match="ZeroDivisionError") as raised:
        writer.write(WriteCall(QUICKSTART, MEMORIES), main=main)
    assert "quotes" not in str(raised.value)
    assert writer.stats().outcomes == {"failed": 1}


def test_a_fallback_without_a_main_model_does_not_begin():
    writer = Writer(on_failure="fallback")
    with pytest.raises(SettingsError, match="main model"):
        writer.write(WriteCall(QUICKSTART, MEMORIES))
    assert writer.stats().writes == 0


def test_unknown_sites_are_counted_for_writer_and_process():
    before = hymem.stats().unknown_sites
    writer = Writer()
    assert writer.note_unknown_site() == 1
    assert writer.stats().unknown_sites == 1
    assert hymem.stats().unknown_sites == before + 1


@pytest.mark.parametrize("content", [False, True])
def test_the_record(hymem_writer, tmp_path, content):
    hymem_writer.reply(None, GOOD)
    writer = Writer(
        base_url=hymem_writer.base_url, record=tmp_path, record_content=content, api_key="sk-planted"
    )
    writer.write(WriteCall(QUICKSTART, MEMORIES))
    (file,) = tmp_path.iterdir()
    assert file.name == f"hymem-{os.getpid()}.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    row = json.loads(file.read_text())
    assert row["outcome"] == "ok"
    assert ("content" in row) is content
    assert ("Seattle" in file.read_text()) is content
    assert "sk-planted" not in file.read_text()


def test_a_record_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / f"hymem-{os.getpid()}.jsonl"
    file.write_text("")
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        Writer(record=tmp_path)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError):
        Writer(record=tmp_path)
    with pytest.raises(SettingsError, match="cannot write"):
        Writer(record=tmp_path / "missing")


def test_a_full_record_stops_and_says_so_once(hymem_writer, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("hymem.events.MAX_RECORD", 600)
    hymem_writer.reply(None, GOOD)
    writer = Writer(base_url=hymem_writer.base_url, record=tmp_path)
    for _ in range(4):
        writer.write(WriteCall(QUICKSTART, MEMORIES))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= 600
    assert caplog.text.count("is full") == 1


def test_the_key_is_in_no_repr():
    writer = Writer(base_url="http://127.0.0.1:1/v1", api_key="sk-planted")
    assert "sk-planted" not in repr(writer) + repr(vars(writer)) + repr(writer.settings)


def test_settings_or_arguments_not_both():
    with pytest.raises(TypeError):
        Writer(hymem.WriterSettings(), model="x")
    with pytest.raises(SettingsError, match="did you mean 'model'"):
        Writer(modle="x")
