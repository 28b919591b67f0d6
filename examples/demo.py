"""Mem0 before and after the swap, on a real server: what `./dev demo` runs.

Without HYMEM_BASE_URL a real vLLM is started on this machine's CPU, with a model of 135 million
parameters under the name hy-memory. It stands in for Hy-Memory-30B-A3B to show the way of a
write; what it writes is as good as a model of that size can do.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import difflib
import json
import logging
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"  # before Mem0 is imported
os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="hymem-demo-"))

import hymem
import hymem_mem0
from hymem_testing.embeddings import DIMENSIONS, Embed, embed_at, embed_words
from hymem_testing.metrics import answered
from hymem_testing.proxy import Exchange, Proxy
from hymem_testing.vllm import environment, server

USER = "maya"
CONVERSATION = (
    "My name is Maya and I live in Lisbon.",
    "My dog is called Pepper.",
    "I am allergic to peanuts.",
    "Every Sunday I play tennis.",
    "In March I will move to Porto for a new job.",
)
QUESTION = "What am I allergic to?"

# For the small model only; Hy-Memory-30B-A3B needs none of it. Chosen by measurement: without the
# schema it writes prose, without the penalty it repeats itself until it is cut, and without the
# instruction it copies the examples of Mem0's prompt.
SMALL_WRITER = {
    "structured_output": "always",
    "max_tokens": 160,
    "max_tokens_if_cut": 160,
    "timeout": 900,
    "extra_body": {"repetition_penalty": 1.05},
}
SMALL_INSTRUCTIONS = (
    "Write only what the user says about themselves in the New Messages above, one short memory for each "
    "sentence. Do not use the examples."
)


def main() -> int:
    options = arguments()
    turns, question = conversation(options)
    with contextlib.ExitStack() as stack:
        url, embed, small = stack.enter_context(backend())
        writer_server = stack.enter_context(Proxy(url))
        main_server = stack.enter_context(Proxy(url, model="the-model-you-use-now", embed=embed))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="hymem-demo-"))
        before = mem0_configuration(main_server, directory, small=small)
        after = swapped(before, writer_server, small=small)
        show_change(before, after)

        events: list[hymem.WriteEvent] = []
        stack.callback(hymem.observe(events.append))
        stack.callback(hymem_mem0.disable)
        hymem_mem0.register()
        from mem0 import Memory

        logging.getLogger("mem0").setLevel(logging.ERROR)  # its optional parts are not installed, it says
        counted = answered(url)
        memory = Memory.from_config(after)
        ingest(memory, turns)
        show_bank(memory)
        answer(memory, question)
        show_calls(events, main_server.chats)
        return account(events, writer_server, main_server, counted, answered(url))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversation", type=Path, help="a file in LoCoMo's JSON shape")
    parser.add_argument("--turns", type=int, help="how many turns of it (the first session)")
    return parser.parse_args()


def conversation(options: argparse.Namespace) -> tuple[list[str], str]:
    """The turns to write, and a question about them."""
    if options.conversation is None:
        return list(CONVERSATION), QUESTION
    first = json.loads(options.conversation.read_text(encoding="utf-8"))[0]
    sessions = first["conversation"]
    turns = [f"{turn['speaker']}: {turn['text']}" for turn in sessions["session_1"]]
    if options.turns is not None:
        numbers = sorted(
            int(key.split("_")[1]) for key in sessions if key.startswith("session_") and key[8:].isdigit()
        )
        turns = [f"{turn['speaker']}: {turn['text']}" for n in numbers for turn in sessions[f"session_{n}"]]
    return turns[: options.turns], str(first["qa"][0]["question"])


# -- servers and configuration -------------------------------------------------------------------


@contextlib.contextmanager
def backend() -> Iterator[tuple[str, Embed, bool]]:
    """The server's URL without `/v1`, embeddings, and whether it has the small model."""
    named = os.environ.get("HYMEM_BASE_URL")
    running = server.read_address()
    if named:
        print(f"using the server at {named}; embeddings are of hashed words")
        yield named.rstrip("/").removesuffix("/v1"), embed_words, False
    elif running is not None:
        yield running.url, embed_at(running.embedder_url), True
    else:
        print("no HYMEM_BASE_URL: using a real vLLM on this machine, with a small model", flush=True)
        with server.serving("smollm2") as own:
            yield own.url, embed_at(own.embedder_url), True


def mem0_configuration(main_server: Proxy, directory: str, *, small: bool) -> dict[str, Any]:
    """What a Mem0 user has today: one provider for everything."""
    provider = {
        "openai_base_url": main_server.base_url,
        "api_key": os.environ.get("HYMEM_API_KEY", "your-own-key"),
    }
    store = {"path": directory + "/qdrant", "collection_name": "memories", "embedding_model_dims": DIMENSIONS}
    made: dict[str, Any] = {
        "llm": {"provider": "openai", "config": {"model": main_server.model, **provider}},
        "embedder": {
            "provider": "openai",
            "config": {"model": "all-MiniLM-L6-v2", "embedding_dims": DIMENSIONS, **provider},
        },
        "vector_store": {"provider": "qdrant", "config": store},
        "history_db_path": directory + "/history.db",
    }
    if small:
        made["custom_instructions"] = SMALL_INSTRUCTIONS
    return made


def swapped(before: dict[str, Any], writer_server: Proxy, *, small: bool) -> dict[str, Any]:
    """The swap: `llm` as it was becomes `main_llm`, and writes go to hy-memory."""
    writer: dict[str, Any] = {"base_url": writer_server.base_url}
    if small:
        writer |= SMALL_WRITER
    after = copy.deepcopy(before)
    after["llm"] = {"provider": "hy_memory", "config": {"writer": writer, "main_llm": before["llm"]}}
    return after


# -- what happens --------------------------------------------------------------------------------


def ingest(memory: Any, turns: list[str]) -> None:
    headline("writing the conversation")
    for number, turn in enumerate(turns, 1):
        started = time.monotonic()
        print(f"{number:3}/{len(turns)}  {textwrap.shorten(turn, 70)}", flush=True)
        try:
            messages = [{"role": "user", "content": turn}]
            results = memory.add(messages, user_id=USER, run_id=f"visit-{number}")["results"]
        except Exception as error:  # whatever Mem0 makes of it, the rest of the conversation goes on
            print(f"         failed after {time.monotonic() - started:.1f} s: {type(error).__name__}")
            continue
        for result in results:
            print(f"         {result['event']:<6} {textwrap.shorten(result['memory'], 90)}")
        print(f"         {time.monotonic() - started:.1f} s", flush=True)


def show_bank(memory: Any) -> None:
    headline("the memory bank")
    for each in memory.get_all(filters={"user_id": USER}, top_k=200)["results"]:
        print("  -", textwrap.shorten(each["memory"], 110))


def answer(memory: Any, question: str) -> None:
    """The user's main model answers from what Mem0's own search finds."""
    headline("a question, answered by the main model from what Mem0's search finds")
    found = memory.search(question, filters={"user_id": USER}, top_k=3, threshold=0.0)["results"]
    print("question:", question)
    for each in found:
        print(f"found:    {textwrap.shorten(each['memory'], 90)}  ({each['score']:.2f})")
    facts = "\n".join(f"- {each['memory']}" for each in found)
    prompt = f"What is known about the user:\n{facts}\n\nAnswer the user's question in one short sentence."
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    print("answer:  ", textwrap.shorten(memory.llm.generate_response(messages), 200))


# -- what is shown -------------------------------------------------------------------------------


def headline(text: str) -> None:
    print(f"\n== {text}", flush=True)


def show_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    headline("the configuration, before and after")
    key = os.environ.get("HYMEM_API_KEY")
    texts = [json.dumps(each, indent=2) for each in (before, after)]
    if key:
        texts = [text.replace(json.dumps(key), '"(your HYMEM_API_KEY)"') for text in texts]
    old, new = (text.splitlines() for text in texts)
    for line in difflib.unified_diff(old, new, "before.json", "after.json", lineterm="", n=2):
        print(line)


def show_calls(events: list[hymem.WriteEvent], main_chats: list[Exchange]) -> None:
    headline("every LLM call")
    rows = [("call site", "server", "model", "tokens in", "out", "seconds", "outcome", "requests, steps")]
    for event in events:
        steps = ", ".join((str(event.requests), *event.steps))
        tokens = str(event.prompt_tokens), str(event.completion_tokens)
        rows.append(
            (event.site, "writer", event.model, *tokens, f"{event.seconds:.1f}", event.outcome, steps)
        )
    for chat in main_chats:
        usage = (chat.reply or {}).get("usage") or {}
        tokens = str(usage.get("prompt_tokens", "")), str(usage.get("completion_tokens", ""))
        status = "ok" if chat.status == 200 else f"HTTP {chat.status}"
        rows.append(
            ("your own call", "main", chat.json["model"], *tokens, f"{chat.seconds:.1f}", status, "1")
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def account(
    events: list[hymem.WriteEvent],
    writer_server: Proxy,
    main_server: Proxy,
    before: int | None,
    after: int | None,
) -> int:
    """Whether every request is accounted for: by an event, and by the server's own count."""
    by_events, by_proxy = sum(event.requests for event in events), len(writer_server.chats)
    seen = sum(each.status == 200 for each in (*writer_server.chats, *main_server.chats))
    print(f"\nwrites: {len(events)} events tell of {by_events} requests; its server was sent {by_proxy}")
    agree = by_events == by_proxy
    if before is not None and after is not None:
        print(f"the server's own /metrics count {after - before} answered; we saw {seen} answers")
        agree = agree and after - before == seen
    return 0 if agree else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (environment.Unavailable, hymem.HymemError) as error:
        sys.exit(str(error))
