"""A memory framework of a page, for the suite to be tried on. Not a stand-in for any real one."""

from __future__ import annotations

import asyncio
import json
import urllib.request


class PlainLLM:
    def __init__(self, base_url, api_key, model):
        self.base_url, self.api_key, self.model = base_url, api_key, model

    def complete(self, messages):
        body = json.dumps({"model": self.model, "messages": messages}).encode()
        headers = {"authorization": f"Bearer {self.api_key}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.base_url}/chat/completions", body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    async def acomplete(self, messages):
        return await asyncio.to_thread(self.complete, messages)


PROVIDERS = {"plain": PlainLLM}


def make_llm(config):
    if config["provider"] not in PROVIDERS:
        raise ValueError(f"unknown provider {config['provider']!r}")
    return PROVIDERS[config["provider"]](**config["config"])


class Notebook:
    def __init__(self, config):
        self.llm = make_llm(config["llm"])
        self.notes = {}

    def add(self, text, user):
        self._remember(text, user)

    def _remember(self, text, user):
        self._keep(self.llm.complete(_prompt(text)), user)

    def _keep(self, reply, user):
        self.notes.setdefault(user, set()).update(json.loads(reply)["notes"])


class AsyncNotebook(Notebook):
    async def add(self, text, user):
        await self._remember(text, user)

    async def _remember(self, text, user):
        self._keep(await self.llm.acomplete(_prompt(text)), user)


def _prompt(text):
    return [{"role": "user", "content": f"Note what is said as JSON: {text}"}]
