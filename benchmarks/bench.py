"""What hymem costs, beside the raw client and other layers over it, measured in one interleaved run.

`./dev bench` installs `requirements.txt` and runs this; it writes RESULTS.md. Times are medians of
calls that take turns, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import importlib.metadata
import json
import os
import platform
import socketserver
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "RESULTS.md"
ITEMS = [
    {
        "id": str(at),
        "text": f"User, who moved to Oslo in spring, keeps {at + 2} bees' nests on the roof and sells the "
        "honey at the market every other Saturday, with a friend from Bergen who paints the labels.",
        "attributed_to": "user",
    }
    for at in range(8)
]
REPLY = json.dumps({"memory": ITEMS})
"""Mem0 2's, of 2 KB: the commonest write."""
MESSAGES = [{"role": "system", "content": "x" * 30_000}, {"role": "user", "content": "y" * 2_000}]
ASKED: dict[str, Any] = {"response_format": {"type": "json_object"}, "temperature": 0.0, "max_tokens": 4096}
NO_THINK = {"chat_template_kwargs": {"reasoning_effort": "no_think"}}
COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "hy-memory",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": REPLY, "reasoning": None},
            }
        ],
        "usage": {"prompt_tokens": 9000, "completion_tokens": 500, "total_tokens": 9500},
    }
).encode()

Call = Callable[[], Any]


@dataclass
class Row:
    """One measured thing. `value` and `budget` in `unit`."""

    what: str
    value: float
    unit: str
    budget: float | None = None

    def cells(self) -> str:
        budget = "" if self.budget is None else f"≤ {self.budget:g} {self.unit}"
        verdict = "" if self.budget is None else "within" if self.value <= self.budget else "**over**"
        return f"| {self.what} | {self.value:.3g} {self.unit} | {budget} | {verdict} |"


# -- measuring -----------------------------------------------------------------------------------


def micro(call: Call, *, calls: int = 2_000, rounds: int = 25) -> float:
    """Microseconds of one call that does no I/O: the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - started) / calls)
    return best * 1e6


def taking_turns(calls: dict[str, Call], *, rounds: int, each: int) -> dict[str, float]:
    """Median microseconds of each, a few calls at a time, in an order that shifts."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        print(f"\r  round {turn + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call = calls[name]
            call()
            for _ in range(each):
                started = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - started)
    print(file=sys.stderr)
    return {name: statistics.median(found) * 1e6 for name, found in taken.items()}


def fresh(statements: str, *, runs: int = 15) -> float:
    """Milliseconds that the last of some lines takes in a process of its own: the median."""
    *before, last = statements.strip().splitlines()
    clock = "import time; started = time.perf_counter()"
    code = "\n".join([*before, clock, last, "print(time.perf_counter() - started)"])
    found = []
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(runs):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found) * 1e3


# -- the server ----------------------------------------------------------------------------------


class _Answering(socketserver.BaseRequestHandler):
    pause = 0.0

    def handle(self) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        answer = head + str(len(COMPLETION)).encode() + b"\r\n\r\n" + COMPLETION
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                piece = self.request.recv(65536)
                if not piece:
                    return
                data += piece
            header, _, data = data.partition(b"\r\n\r\n")
            length = int(header.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            while len(data) < length:
                data += self.request.recv(65536)
            data = data[length:]
            time.sleep(self.pause)
            self.request.sendall(answer)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def serve(pause: float) -> None:
    """Answer every request with the same completion; the port goes to stdout."""
    _Answering.pause = pause
    with _Server(("127.0.0.1", 0), _Answering) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


@contextmanager
def serving(pause: float = 0.0) -> Iterator[str]:
    command = [sys.executable, __file__, "--serve", str(pause)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


# -- what is measured ----------------------------------------------------------------------------


def write_call() -> Any:
    from hymem.plan import WriteCall
    from hymem_mem0.contracts import ADDITIVE

    return WriteCall(
        MESSAGES, ADDITIVE, site="mem0.extract_additive", response_format=ASKED["response_format"]
    )


def raw(client: Any) -> Call:
    return lambda: client.chat.completions.create(
        model="hy-memory", messages=MESSAGES, extra_body=NO_THINK, **ASKED
    )


def the_plan() -> list[Row]:
    from hymem.contract import RawReply
    from hymem.decode import _STRICT, decode
    from hymem.plan import Received, Tally, write_plan
    from hymem.settings import WriterSettings

    call, settings = write_call(), WriterSettings()
    contract, reply = call.contract, RawReply(REPLY, (), "stop")
    received, value = Received(reply, 9000, 500), json.loads(REPLY)

    def planned() -> None:
        plan = write_plan(call, settings, Tally())
        next(plan)
        try:
            plan.send(received)
        except StopIteration:
            return

    whole = micro(planned)
    loads, strict = micro(lambda: json.loads(REPLY)), micro(lambda: _STRICT.decode(REPLY))
    decoded = micro(lambda: decode(REPLY, contract.keys))
    checked = micro(lambda: contract.check(value, call.facts))
    read = micro(lambda: contract.read(reply, call.facts))
    size = f"{len(REPLY) / 1024:.1f} KB"
    return [
        Row(f"the write plan, on an `ok` reply of {size} with {len(ITEMS)} memories", whole, "µs", 20),
        Row("- `json.loads` of the reply", loads, "µs"),
        Row("- bounds and doubled keys, looked for while it is parsed", strict - loads, "µs"),
        Row("- deciding that the text is that JSON and no more", decoded - strict, "µs"),
        Row("- the contract, item by item", checked, "µs"),
        Row("- the rest of reading", read - decoded - checked, "µs"),
        Row("- the request, and the order of the steps", whole - read, "µs"),
    ]


def on_a_mock_transport() -> list[Row]:
    import httpx
    import openai

    from hymem import Writer, transport

    answer = httpx.MockTransport(
        lambda request: httpx.Response(200, content=COMPLETION, headers={"content-type": "application/json"})
    )
    client = openai.OpenAI(
        base_url="http://127.0.0.1:1/v1", api_key="x", http_client=httpx.Client(transport=answer)
    )
    writer = Writer(base_url="http://127.0.0.1:1/v1")
    ours: Any = transport._shared(writer._endpoint).client
    ours._client._transport = answer
    ours._client._mounts.clear()
    call = write_call()
    found = taking_turns({"raw": raw(client), "hymem": lambda: writer.write(call)}, rounds=40, each=50)
    plan, sent, event = between_requests(writer, call)
    transport.close()
    return [
        Row("the raw openai client on a mock transport", found["raw"], "µs"),
        Row("added to that by a routed write", found["hymem"] - found["raw"], "µs", 60),
        Row("- the same write plan, where it runs between two requests", plan, "µs"),
        Row("- one connection at a time, headers, bounds, the reply's parts", sent - found["raw"], "µs"),
        Row("- the event", event, "µs"),
    ]


def between_requests(writer: Any, call: Any, times: int = 1500) -> tuple[float, float, float]:
    """Median microseconds of the plan, of sending, and of the event, in real writes."""
    from hymem import transport
    from hymem.plan import Tally, write_plan

    clock, found = time.perf_counter, []
    for _ in range(times):
        began, tally = clock(), Tally()
        plan = write_plan(call, writer.settings, tally)
        step: Any = next(plan)
        asked = clock()
        answer = transport.send(writer._endpoint, step.request, step.deadline)
        answered = clock()
        try:
            plan.send(answer)
        except StopIteration:
            read = clock()
        writer._finish(plan, tally, call, began)
        found.append((asked - began + read - answered, answered - asked, clock() - read))
    plan_, sent, event = (statistics.median(each) * 1e6 for each in zip(*found, strict=True))
    return plan_, sent, event


def calls_that_are_no_write() -> list[Row]:
    import mem0

    import hymem_mem0
    from hymem import Writer
    from hymem.patching import Switch
    from hymem_mem0.models import HyMemoryLLM

    class Main:
        config = None

        def generate_response(self, messages: Any) -> str:
            return "an answer"

    main, switch = Main(), Switch()
    switch.on = True
    routed = HyMemoryLLM.around(main, Writer(), switch)
    memory = object.__new__(mem0.Memory)
    memory.llm = main
    plain = micro(lambda: memory.llm.generate_response(MESSAGES), calls=20_000)
    with hymem_mem0.enable():
        enabled = micro(lambda: memory.llm.generate_response(MESSAGES), calls=20_000)
    around = micro(lambda: routed.generate_response(MESSAGES), calls=20_000)
    direct = micro(lambda: main.generate_response(MESSAGES), calls=20_000)
    return [
        Row("added to a call that is no write, with `enable()`", enabled - plain, "µs", 0.5),
        Row("the same, through an LLM of provider `hy_memory`", around - direct, "µs", 0.5),
    ]


def start_up_hook(runs: int = 60) -> float:
    """Milliseconds that it adds to the start of an interpreter: medians of starts that take turns."""
    taken: dict[str, list[float]] = {"0": [], "1": []}
    for _ in range(runs):
        for switch, found in taken.items():
            environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            started = time.perf_counter()
            command = [sys.executable, "-c", "pass"]
            subprocess.run(command, check=True, env={**environ, "HYMEM_AUTOLOAD": switch})
            found.append(time.perf_counter() - started)
    return (statistics.median(taken["1"]) - statistics.median(taken["0"])) * 1e3


def starting() -> list[Row]:
    enable = "hymem_mem0.enable(base_url='http://127.0.0.1:1/v1')"
    whole = fresh(f"import mem0, hymem_mem0\n{enable}")
    loaded = fresh(f"import mem0, hymem_mem0, hymem_mem0.seams, hymem_mem0.models\n{enable}")
    return [
        Row("`import hymem`", fresh("import sys\nimport hymem"), "ms", 3),
        Row("the start-up hook of `hymem-autoload`, added to a start of Python", start_up_hook(), "ms", 1.5),
        Row("`enable()` with Mem0 imported", whole, "ms", 5),
        Row("- the loading of our modules, once a process", whole - loaded, "ms"),
        Row("- the enabling", loaded, "ms"),
    ]


def beside_others(base_url: str) -> tuple[list[Row], dict[str, float]]:
    """On loopback, with the layers that people use for the same request."""
    import litellm
    import openai
    from langchain_openai import ChatOpenAI
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike
    from openinference.instrumentation.openai import OpenAIInstrumentor

    from hymem import Writer, transport

    key = "sk-bench"
    client = openai.OpenAI(base_url=base_url, api_key=key)
    writer, call = Writer(base_url=base_url), write_call()
    chat = ChatOpenAI(
        base_url=base_url,
        api_key=key,
        model="hy-memory",
        extra_body=NO_THINK,
        temperature=0.0,
        max_tokens=4096,
    ).bind(response_format=ASKED["response_format"])
    like = OpenAILike(
        api_base=base_url,
        api_key=key,
        model="hy-memory",
        is_chat_model=True,
        additional_kwargs={"extra_body": NO_THINK, "response_format": ASKED["response_format"]},
    )
    said = [ChatMessage(role=each["role"], content=each["content"]) for each in MESSAGES]
    params = {"model": "openai/hy-memory", "api_base": base_url, "api_key": key}
    router = litellm.Router(model_list=[{"model_name": "hy-memory", "litellm_params": params}])
    body: Any = {"messages": MESSAGES, "extra_body": NO_THINK, **ASKED}
    calls: dict[str, Call] = {
        "openai client": raw(client),
        "hymem `Writer`": lambda: writer.write(call),
        "LangChain `ChatOpenAI`": lambda: chat.invoke(MESSAGES),
        "LlamaIndex `OpenAILike`": lambda: like.chat(said),
        "LiteLLM SDK": lambda: litellm.completion(**params, **body),
        "LiteLLM `Router`": lambda: router.completion(model="hy-memory", **body),
    }
    found = taking_turns(calls, rounds=30, each=20)
    OpenAIInstrumentor().instrument()  # patches the client itself: so after the others, beside a raw one
    traced = openai.OpenAI(base_url=base_url, api_key=key)
    again = taking_turns({"traced": raw(traced), "hymem": lambda: writer.write(call)}, rounds=10, each=20)
    OpenAIInstrumentor().uninstrument()
    found["OpenInference's wrapper of the openai client"] = (
        again["traced"] * found["hymem `Writer`"] / again["hymem"]
    )
    transport.close()
    ratio = found["hymem `Writer`"] / found["openai client"]
    return [Row("a routed write on loopback, over the raw client", ratio, "x", 1.05)], found


def at_once(base_url: str, threads: int = 32, calls: int = 25) -> list[Row]:
    """Writes a second of many threads, against a server that takes 50 ms."""
    import openai

    from hymem import Writer, transport

    def rate(call: Call) -> float:
        ready = threading.Barrier(threads + 1)

        def work() -> None:
            call()
            ready.wait()
            for _ in range(calls):
                call()

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(work) for _ in range(threads)]
            ready.wait()
            started = time.perf_counter()
            for each in running:
                each.result()
        return threads * calls / (time.perf_counter() - started)

    client = openai.OpenAI(base_url=base_url, api_key="sk-bench")
    writer, call = Writer(base_url=base_url), write_call()
    found = {"raw": 0.0, "hymem": 0.0}
    for _ in range(3):
        found["raw"] = max(found["raw"], rate(raw(client)))
        found["hymem"] = max(found["hymem"], rate(lambda: writer.write(call)))
    transport.close()
    return [
        Row(f"requests a second of the raw client, {threads} threads, a server of 50 ms", found["raw"], "/s"),
        Row("writes a second, the same", found["hymem"], "/s"),
    ]


# -- the report ----------------------------------------------------------------------------------

_VERSIONS = (
    *("openai", "pydantic", "mem0ai", "litellm", "langchain-openai", "llama-index-llms-openai-like"),
    "openinference-instrumentation-openai",
)


def report(rows: list[Row], peers: dict[str, float]) -> str:
    import hymem

    raw_time = peers["openai client"]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _VERSIONS]
    lines = [
        "# What hymem costs",
        "",
        f"Written by `./dev bench` on {datetime.date.today().isoformat()}: {_machine()}, "
        f"Python {platform.python_version()}. Medians of calls that take turns; without I/O, the best round.",
        "",
        "| what | measured | budget | |",
        "| --- | --- | --- | --- |",
        *(row.cells() for row in rows),
        "",
        "What is over: half of the plan is the reading of JSON, of which the look for bounds and doubled "
        "keys is the price of not handing on what two parsers would read differently. Between two requests "
        "the plan takes twice what it takes in a loop: the client's own code has meanwhile filled the "
        "caches. Of a write of a second, all of it together is a ten-thousandth. Loading our modules is "
        "mostly the making of dataclasses and the compiling of patterns.",
        "",
        "The same request, a prompt of 32 KB and a reply of 2 KB, to a server on loopback, by each of the "
        "layers that people put over the client. Those below hymem check nothing of the reply.",
        "",
        "| client | µs | over the raw client |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {value:.0f} | {value / raw_time:.2f}x |"
            for name, value in sorted(peers.items(), key=lambda each: each[1])
        ),
        "",
        f"Versions: hymem {hymem.__version__}, {', '.join(versions)}.",
        "",
    ]
    return "\n".join(lines)


def _machine() -> str:
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    return f"{model}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=float, metavar="PAUSE", help=argparse.SUPPRESS)
    parser.add_argument("--dry", action="store_true", help="print, and leave RESULTS.md as it is")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    rows: list[Row] = []
    for part in (the_plan, on_a_mock_transport, calls_that_are_no_write, starting):
        print(part.__name__.replace("_", " "), file=sys.stderr, flush=True)
        rows += part()
    print("beside others", file=sys.stderr)
    with serving() as base_url:
        more, peers = beside_others(base_url)
    rows[12:12] = more
    print("at once", file=sys.stderr)
    with serving(pause=0.05) as base_url:
        rows += at_once(base_url)
    text = report(rows, peers)
    print(text)
    if not arguments.dry:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ |= {"MEM0_TELEMETRY": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # no network
    os.environ["HYMEM_AUTOLOAD"] = "0"  # but where it is what is measured
    main()
