"""What is on the wire, and what a broken server can do to us. Over real sockets."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import gzip
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import warnings

import pytest

from hymem import MEMORIES, PromptTooLong, WriteCall, Writer, WriterUnavailable, transport
from hymem_testing.http import Body, LocalServer
from hymem_testing.proxy import Cut, Dropped, Endless, Proxy

CALL = WriteCall([{"role": "user", "content": "I live in Oslo"}], MEMORIES)
GOOD = '{"memories": ["Lives in Oslo"]}'
WAYS = ("write", "awrite")


@pytest.fixture(autouse=True)
def _clean():
    yield
    transport.close()


@pytest.fixture
def writer(hymem_writer):
    hymem_writer.reply(None, GOOD)
    return Writer(base_url=hymem_writer.base_url)


def do(writer, way, call=CALL):
    return writer.write(call) if way == "write" else asyncio.run(writer.awrite(call))


@pytest.mark.parametrize("way", WAYS)
def test_the_request_as_the_server_sees_it(hymem_writer, writer, way):
    assert do(writer, way).value == ["Lives in Oslo"]
    (sent,) = hymem_writer.requests
    assert sent.path == "/v1/chat/completions"
    assert sent.json == {
        "model": "hy-memory",
        "messages": [{"role": "user", "content": "I live in Oslo"}],
        "temperature": 0.0,
        "max_tokens": 4096,
        "chat_template_kwargs": {"reasoning_effort": "no_think"},
    }


USERS = {
    "OPENAI_API_KEY": "sk-users-key",
    "OPENAI_ORG_ID": "org-users",
    "OPENAI_PROJECT_ID": "proj-users",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-users-key\nX-Users: sk-users-key",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_the_users_environment_reaches_the_writer(hymem_writer, monkeypatch, way):
    for name, value in USERS.items():
        monkeypatch.setenv(name, value)
    hymem_writer.reply(None, GOOD)
    do(Writer(base_url=hymem_writer.base_url, api_key="writers-key", headers={"X-Gateway": "gate"}), way)
    (sent,) = hymem_writer.requests
    assert sent.headers["authorization"] == "Bearer writers-key"
    assert sent.headers["x-gateway"] == "gate"
    assert "users" not in str(dict(sent.headers))
    kept = {"host", "connection", "accept", "content-type", "user-agent", "content-length"}
    assert set(sent.headers) == kept | {"accept-encoding", "authorization", "x-gateway"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("status", "error"), [(400, None), (401, None), (404, None), (500, None), (307, None)]
)
def test_statuses(hymem_writer, way, status, error):
    body = {
        "error": {
            "message": "quotes: I live in Oslo",
            "type": "BadRequestError",
            "param": "x",
            "code": status,
        }
    }
    hymem_writer.reply(None, body=body, status=status, headers={"location": "/elsewhere"})
    with pytest.raises(WriterUnavailable) as raised:
        do(Writer(base_url=hymem_writer.base_url), way)
    assert raised.value.status == status
    assert len(hymem_writer.chats) == 1  # a redirect is not followed with the conversation
    assert "Oslo" not in str(raised.value)
    assert raised.value.site == "hymem.write"


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_is_not_there_is_told_with_those_that_are(hymem_writer, way):
    with pytest.raises(WriterUnavailable, match="it serves 'hy-memory'; set `model`"):
        do(Writer(base_url=hymem_writer.base_url, model="hy-memry"), way)


class _Chatty(LocalServer):
    """Says in its list of models what it was told in a chat."""

    def answer(self, method, path, headers, raw):
        if path.endswith("/models"):
            return Body(
                {"data": [{"id": "hy-memory"}, {"id": "I live in Oslo"}, {"name": "x"}][: self.models]}
            )
        return Body({}, 404)


@pytest.mark.parametrize("models", [2, 3])
def test_of_what_a_server_lists_only_names_are_told(models):
    with _Chatty() as server:
        server.models = models
        with pytest.raises(WriterUnavailable) as raised:
            Writer(base_url=server.base_url).write(CALL)
    assert ("it serves 'hy-memory';" in str(raised.value)) == (models == 2)
    assert "Oslo" not in str(raised.value)


def test_a_refused_key_has_a_body_of_its_own(hymem_writer):
    hymem_writer.reply(None, body={"error": "Unauthorized"}, status=401)
    with pytest.raises(WriterUnavailable, match="api_key"):
        Writer(base_url=hymem_writer.base_url).write(CALL)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{"message": {"content": 7}}]},
        {"choices": None},
        [],
        "no json",
        "[" * 100_000,
    ],
)
def test_what_is_no_completion(hymem_writer, way, body):
    hymem_writer.reply(None, body=body)
    with pytest.raises(WriterUnavailable) as raised:
        do(Writer(base_url=hymem_writer.base_url), way)
    assert raised.value.kind == "not_a_reply"


@pytest.mark.parametrize("way", WAYS)
def test_a_cut_body_and_a_dropped_connection_are_tried_again(hymem_writer, way):
    hymem_writer.reply(None, GOOD)
    hymem_writer.reply(None, answer=Cut(), times=1)
    hymem_writer.reply(None, answer=Dropped(), times=1)
    writer = Writer(base_url=hymem_writer.base_url)
    assert do(writer, way).value == ["Lives in Oslo"]
    assert len(hymem_writer.requests) == 3
    assert writer.stats().requests == 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [200, 500])
def test_a_body_of_300_mb_is_cut_at_the_bound(hymem_writer, way, status):
    huge = Endless(300 << 20, status=status)
    hymem_writer.reply(None, answer=huge)
    with pytest.raises(WriterUnavailable) as raised:
        do(Writer(base_url=hymem_writer.base_url), way)
    assert raised.value.kind == "too_large"
    assert huge.hung_up.wait(10)
    assert huge.sent < 30 << 20  # what the sockets' buffers took, not the body


@pytest.mark.parametrize("way", WAYS)
def test_a_body_that_drips_for_ever_ends_with_the_time(hymem_writer, way):
    drip = Endless(1 << 30, piece=b" ", pause=0.02)
    hymem_writer.reply(None, answer=drip)
    with pytest.raises(WriterUnavailable) as raised:
        do(Writer(base_url=hymem_writer.base_url, timeout=0.5), way)
    assert raised.value.kind == "timeout"
    assert drip.hung_up.wait(10)
    assert len(hymem_writer.requests) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_says_nothing(hymem_writer, way):
    hymem_writer.reply(None, GOOD, delay=4.0)
    with pytest.raises(WriterUnavailable) as raised:
        do(Writer(base_url=hymem_writer.base_url, timeout=2.0), way)  # a busy machine takes a while to send
    assert raised.value.kind == "timeout"
    assert len(hymem_writer.requests) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_packed_body_is_refused(hymem_writer, way):
    envelope = {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}]}
    packed = gzip.compress(json.dumps(envelope).encode())
    hymem_writer.reply(None, answer=Body(packed, headers={"content-encoding": "gzip"}))
    with pytest.raises(WriterUnavailable) as raised:
        do(Writer(base_url=hymem_writer.base_url), way)
    assert raised.value.kind == "not_a_reply"


@pytest.mark.parametrize("way", WAYS)
def test_a_lone_surrogate_in_the_conversation_costs_a_character_and_not_the_write(hymem_writer, writer, way):
    call = WriteCall([{"role": "user", "content": "I live in \ud83d Oslo"}], MEMORIES)
    assert do(writer, way, call).value == ["Lives in Oslo"]
    (sent,) = hymem_writer.requests
    assert sent.json["messages"][0]["content"] == "I live in  Oslo"
    assert writer.stats().steps == {"reshaped": 1}


@pytest.mark.parametrize("way", WAYS)
def test_counts_of_another_type_do_not_cost_the_reply(hymem_writer, way):
    usage = {"prompt_tokens": "many", "completion_tokens": None}
    choice = {"message": {"role": "assistant", "content": GOOD}, "finish_reason": "stop"}
    hymem_writer.reply(None, body={"choices": [choice], "usage": usage})
    assert do(Writer(base_url=hymem_writer.base_url), way).value == ["Lives in Oslo"]


def test_waiting_for_a_connection_is_part_of_the_time(hymem_writer):
    """One connection, and a first write that holds it past the second one's time."""
    hymem_writer.reply(None, GOOD, delay=1.5)
    patient = Writer(base_url=hymem_writer.base_url, max_connections=1)
    hurried = Writer(base_url=hymem_writer.base_url, max_connections=1, timeout=0.3)
    thread = threading.Thread(target=patient.write, args=(CALL,))
    thread.start()
    while not hymem_writer.requests:
        time.sleep(0.01)
    with pytest.raises(WriterUnavailable) as raised:
        hurried.write(CALL)
    assert raised.value.kind == "busy"
    assert hurried.stats().requests == 0
    thread.join()
    assert len(hymem_writer.requests) == 1
    assert patient.stats().outcomes == {"ok": 1}


def test_a_thread_that_nobody_waits_for_is_cancelled(hymem_writer, writer):
    waiting = True

    class Late(Body):
        def send(self, handler):
            nonlocal waiting
            waiting = False
            super().send(handler)

    envelope = {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}]}
    hymem_writer.reply(None, answer=Late(envelope))
    with pytest.raises(concurrent.futures.CancelledError):
        writer.write(CALL, wanted=lambda: waiting)
    assert writer.stats().outcomes == {"cancelled": 1}


@pytest.mark.parametrize("way", WAYS)
def test_the_sdk_logs_nothing_of_a_write(hymem_writer, writer, caplog, way):
    with caplog.at_level(logging.DEBUG):
        do(writer, way)
    assert "I live in Oslo" not in caplog.text
    transport.close()
    assert transport._not_ours not in logging.getLogger("openai._base_client").filters


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("way", WAYS)
def test_after_five_failures_in_a_row_the_endpoint_rests_and_says_so_once(monkeypatch, caplog, way):
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    writer = Writer(base_url=f"http://127.0.0.1:{closed_port()}/v1")
    kinds = []
    for _ in range(4):
        with pytest.raises(WriterUnavailable) as raised:
            do(writer, way)
        kinds.append(raised.value.kind)
    assert kinds == ["connect", "resting", "resting", "resting"]
    rests = [record for record in caplog.records if "leaving it alone" in record.getMessage()]
    assert len(rests) == 1


def test_the_prompt_is_counted_by_the_server_when_there_is_no_room(hymem_double):
    long = [{"role": "user", "content": "word " * 10_000}]
    with Proxy(hymem_double.url) as proxy:
        Writer(base_url=proxy.base_url, structured_output="always").write(WriteCall(long, MEMORIES))
    paths = [each.path for each in proxy.requests]
    assert paths == ["/v1/chat/completions", "/tokenize", "/v1/chat/completions"]
    assert proxy.requests[-1].json["max_tokens"] < 4096
    writer = Writer(base_url=hymem_double.base_url)
    with pytest.raises(PromptTooLong) as raised:
        writer.write(WriteCall(long + long, MEMORIES))
    assert raised.value.prompt_tokens > raised.value.max_model_len


# -- processes, threads, loops -------------------------------------------------------------------


def test_threads_get_their_own_replies(hymem_double):
    writer = Writer(base_url=hymem_double.base_url, structured_output="always")
    got = {}

    def work(n):
        got[n] = writer.write(WriteCall([{"role": "user", "content": f"n{n}"}], MEMORIES)).value

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {n: [f"n{n}"] * 2 for n in range(32)}
    assert writer.stats().writes == 32


LOOPS = """
import asyncio, gc, sys
from hymem import MEMORIES, WriteCall, Writer
writer = Writer(base_url=sys.argv[1])
call = WriteCall([{"role": "user", "content": "hello"}], MEMORIES)

async def several():
    replies = await asyncio.gather(*(writer.awrite(call) for _ in range(5)))
    return [reply.value for reply in replies]

for _ in range(3):
    assert asyncio.run(several()) == [["Lives in Oslo"]] * 5
writer.write(call)
gc.collect()
from hymem import transport
assert transport._by_loop == {}, transport._by_loop
assert writer.stats().writes == 16
print("done")
"""


def run_python(code, *arguments, **environ):
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    # The SDKs themselves warn at import on some Pythons; what we answer for is ours.
    command[3:3] = ["-W", "ignore::DeprecationWarning"]
    environment = {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_three_loops_in_a_row_leave_nothing_behind(hymem_writer):
    hymem_writer.reply(None, GOOD)
    done = run_python(LOOPS, hymem_writer.base_url)
    assert done.stdout.strip() == "done"
    assert done.stderr == ""


FORK = """
import os, sys
from hymem import MEMORIES, WriteCall, Writer, stats
writer = Writer(base_url=sys.argv[1])
def ask(word):
    return writer.write(WriteCall([{"role": "user", "content": word}], MEMORIES)).value
ask("parent")
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        ok = all(ask(f"child{child}-{n}") == [f"child{child}-{n}"] * 2 for n in range(8))
        ok = ok and writer.stats().writes == 8 and stats().writes == 8
        os._exit(0 if ok else 1)
    children.append(pid)
for n in range(8):
    assert ask(f"parent-{n}") == [f"parent-{n}"] * 2
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
assert writer.stats().writes == 9
print("done")
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_its_own_replies(hymem_double):
    done = run_python(FORK, hymem_double.base_url, HYMEM_STRUCTURED_OUTPUT="always")
    assert done.stdout.strip() == "done"


async def test_a_cancelled_write_is_counted(hymem_writer):
    hymem_writer.reply(None, GOOD, delay=2)
    writer = Writer(base_url=hymem_writer.base_url)
    task = asyncio.ensure_future(writer.awrite(CALL))
    while not hymem_writer.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert writer.stats().outcomes == {"cancelled": 1}
    hymem_writer.clear()
    hymem_writer.reply(None, GOOD)
    assert (await writer.awrite(CALL)).value == ["Lives in Oslo"]


def test_a_loop_closed_without_its_generators_is_swept(hymem_writer):
    hymem_writer.reply(None, GOOD)
    writer = Writer(base_url=hymem_writer.base_url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(writer.awrite(CALL))
            loop.close()
        asyncio.run(writer.awrite(CALL))
        del loop
        gc.collect()
    assert transport._by_loop == {}


def test_equal_endpoints_share_a_client_and_others_do_not(hymem_writer, writer):
    same = Writer(base_url=hymem_writer.base_url, model="another")
    other = Writer(base_url=hymem_writer.base_url, api_key="another")
    for each in (writer, same, other):
        each.write(CALL)
    assert len(transport._by_endpoint) == 2
    assert "another" not in repr(list(transport._by_endpoint))


@pytest.mark.parametrize("way", WAYS)
def test_connections_are_bounded(hymem_writer, way):
    running, peak, lock = 0, 0, threading.Lock()

    class Slow(Body):
        def send(self, handler):
            nonlocal running, peak
            with lock:
                running += 1
                peak = max(peak, running)
            time.sleep(0.05)
            with lock:
                running -= 1
            super().send(handler)

    envelope = {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}]}
    hymem_writer.reply(None, answer=Slow(envelope))
    writer = Writer(base_url=hymem_writer.base_url, max_connections=3)

    async def at_once():
        await asyncio.gather(*(writer.awrite(CALL) for _ in range(12)))

    if way == "awrite":
        asyncio.run(at_once())
    else:
        threads = [threading.Thread(target=writer.write, args=(CALL,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert peak == 3
    assert writer.stats().outcomes == {"ok": 12}


def test_a_key_that_would_go_unencrypted_is_told(caplog):
    with caplog.at_level(logging.WARNING):
        Writer(base_url="http://gateway.example/v1", api_key="sk-planted")
        Writer(base_url="http://gateway.example/v1")
        Writer(base_url="http://127.0.0.1:1/v1", api_key="sk-planted")
    assert len(caplog.records) == 1
    assert "sk-planted" not in caplog.text


def test_an_error_has_nothing_of_the_sdk_behind_it(hymem_writer):
    hymem_writer.reply(None, body=json.dumps({"error": {"message": "I live in Oslo"}}), status=500)
    with pytest.raises(WriterUnavailable) as raised:
        Writer(base_url=hymem_writer.base_url).write(CALL)
    chain, error = [], raised.value
    while error is not None:
        chain.append(f"{type(error).__module__} {error!r}")
        error = error.__cause__ or error.__context__
    assert all(each.startswith("hymem") for each in chain)
    assert "Oslo" not in " ".join(chain)
