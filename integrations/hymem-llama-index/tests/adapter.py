"""LlamaIndex as the conformance suite sees it: a block of facts for each user. Imports neither LlamaIndex
nor the integration by itself."""

from __future__ import annotations

from llama_index_memory import USERS_KEY, AsyncBlocks, Blocks, facts_reply

from hymem_testing.conformance import Adapter


class Facts(Adapter):
    integration = "hymem_llama_index"
    framework = "llama_index.core.memory"
    ways = ("sync", "async")
    sites = ("llama-index.extract",)
    rubbish = "I remember."
    has_names = False
    has_own_main = True

    def before(self, main):
        return {"writes": _like(main), "answers": _like(main)}

    def after(self, main, writer):
        given = {("api_base" if name == "base_url" else name): value for name, value in writer.items()}
        answers = _like(main) if main is not None else None
        return {"writes": {"hy_memory": True, **given}, "main_llm": answers, "answers": answers}

    def open(self, configuration, way):
        given = dict(configuration["writes"])
        if configuration.get("main_llm") is not None:
            given["main_llm"] = _llm(configuration["main_llm"])
        answers = configuration["answers"]
        return (AsyncBlocks if way == "async" else Blocks)(_llm(given), answers and _llm(answers))

    def write(self, memory, text, user="ann"):
        return memory.write(text, user)

    def read(self, memory, question):
        return memory.model.complete(question).text

    def memories(self, memory, user="ann"):
        return set(memory.of(user).facts)

    def script(self, proxy, facts, said=None):
        proxy.reply(said, facts_reply(*facts))


def _like(main):
    return {"model": main.model, "api_base": main.base_url, "api_key": USERS_KEY}


def _llm(given):
    """As an application makes its LLMs out of its configuration."""
    more = {name: value for name, value in given.items() if name != "hy_memory"}
    if "hy_memory" in given:
        from hymem_llama_index import HyMemoryLLM

        return HyMemoryLLM(**more)
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(**more, is_chat_model=True, reuse_client=False, max_retries=0)
