"""The kit itself: proxies, scripted replies, shapes, embeddings, the choice of a server."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from hymem_testing.double import Double
from hymem_testing.embeddings import DIMENSIONS, embed_words

pytestmark = pytest.mark.hymem_real

NO_THINK = {"chat_template_kwargs": {"reasoning_effort": "no_think"}}
pytest_plugins = ("pytester",)


def post(proxy, path="/v1/chat/completions", **fields):
    body = {
        "model": proxy.model,
        "messages": [{"role": "user", "content": "I like tea"}],
        "max_tokens": 60,
        **fields,
    }
    request = urllib.request.Request(
        proxy.url + path,
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer k"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def test_requests_are_kept_as_they_were_sent(hymem_writer):
    with pytest.raises(urllib.error.HTTPError) as raised:
        post(hymem_writer)
    raised.value.close()
    assert raised.value.code == 400  # the strict template, behind the proxy
    post(hymem_writer, **NO_THINK)
    first, second = hymem_writer.chats
    assert first.status == 400
    assert first.headers["authorization"] == "Bearer k"
    assert "chat_template_kwargs" not in first.json
    assert second.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
    assert second.content


def test_scripted_replies(hymem_writer):
    hymem_writer.reply(None, "for all")
    hymem_writer.reply("tea", "for tea", times=1)
    hymem_writer.reply(lambda body: body.get("n") == 3, body={"x": 1}, status=200)
    assert post(hymem_writer)["choices"][0]["message"]["content"] == "for tea"
    assert post(hymem_writer)["choices"][0]["message"]["content"] == "for all"
    assert post(hymem_writer, n=3) == {"x": 1}
    hymem_writer.clear()
    assert hymem_writer.requests == []


def test_a_shape_is_asked_of_the_model_and_not_seen_in_the_request(hymem_writer):
    schema = {
        "type": "object",
        "properties": {"fact": {"type": "string", "maxLength": 30}},
        "required": ["fact"],
        "additionalProperties": False,
    }
    hymem_writer.shape("tea", schema)
    post(hymem_writer, response_format={"type": "json_object"}, **NO_THINK)
    (sent,) = hymem_writer.chats
    assert sent.json["response_format"] == {"type": "json_object"}
    assert set(json.loads(sent.content)) == {"fact"}


def test_the_users_own_provider(hymem_main):
    """Under its own name, without no_think, and with embeddings."""
    assert post(hymem_main, model="users-own-model", reasoning_effort="low")["choices"]
    (sent,) = hymem_main.chats
    assert sent.json["model"] == "users-own-model"
    assert "chat_template_kwargs" not in sent.json
    answer = post(
        hymem_main, "/v1/embeddings", input=["green tea is my favourite", "I drink green tea", "a train"]
    )
    near, far = (
        sum(
            x * y
            for x, y in zip(answer["data"][0]["embedding"], answer["data"][at]["embedding"], strict=True)
        )
        for at in (1, 2)
    )
    assert near > far
    assert len(answer["data"][0]["embedding"]) == DIMENSIONS


def test_embeddings_in_the_encoding_that_clients_ask_for(hymem_main):
    import base64
    import struct

    plain = post(hymem_main, "/v1/embeddings", input="tea")["data"][0]["embedding"]
    packed = post(hymem_main, "/v1/embeddings", input="tea", encoding_format="base64")["data"][0]["embedding"]
    assert list(struct.unpack(f"<{DIMENSIONS}f", base64.b64decode(packed))) == pytest.approx(plain, abs=1e-6)


def test_word_vectors_have_length_one():
    (vector,) = embed_words(["a b c"])
    assert sum(each * each for each in vector) == pytest.approx(1.0)


def test_a_key_is_asked_for_under_v1_only():
    with Double(api_key="right") as double:
        with urllib.request.urlopen(double.url + "/health", timeout=10) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(double.url + "/v1/models", timeout=10)
        with raised.value as error:
            assert error.code == 401
            assert json.load(error) == {"error": "Unauthorized"}


def test_the_plugin_imports_nothing_at_collection():
    code = "import sys, hymem_testing.plugin; print(sorted(name for name in sys.modules if 'hymem' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['hymem_testing', 'hymem_testing.plugin']"


def test_a_server_that_is_not_there_is_an_error_and_no_fall_back(pytester, monkeypatch):
    monkeypatch.delenv("HYMEM_TEST_BASE_URL", raising=False)
    pytester.makepyfile("def test_it(hymem_server): pass")
    result = pytester.runpytest_subprocess("--hymem-server=external", "-p", "no:asyncio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*needs HYMEM_TEST_BASE_URL*"])


def test_marked_tests_get_their_model(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.hymem_model("hyv3-dummy")
        def test_other(hymem_server):
            assert hymem_server.model == "hyv3-dummy"

        def test_default(hymem_server):
            assert hymem_server.model == "smollm2"
        """
    )
    result = pytester.runpytest_subprocess("-v", "-p", "no:asyncio")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_default*", "*test_other*"])
