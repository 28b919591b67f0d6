"""Every LLM call with which LangChain keeps memory, writes and reads, in every pinned version.

Classic memory is `langchain.memory` before 1.0 and `langchain_classic.memory` since; its functions are
the same in both.
"""

from __future__ import annotations

from typing import Any

from hymem.contract import Contract
from hymem.integration import CallSite

from . import contracts

HOMES = ("langchain_classic.memory", "langchain.memory")
"""Where classic memory lives, the newer first."""
COMMUNITY = "langchain_community.memory"
MIDDLEWARE = "langchain.agents.middleware.summarization"
MANAGERS = "langmem.knowledge.extraction"
RUNNING = "langmem.short_term.summarization"


def _classic(name: str, module: str, *qualnames: str, contract: Contract[Any]) -> CallSite:
    homes = (COMMUNITY,) if module == "kg" else HOMES
    return CallSite(
        id=f"langchain.{name}",
        side="write",
        where=tuple(f"{home}.{module}:{qualname}" for home in homes for qualname in qualnames),
        contract=contract,
        after_failure="turn lost",
    )


SUMMARY = _classic(
    "summary",
    "summary",
    "SummarizerMixin.predict_new_summary",
    "SummarizerMixin.apredict_new_summary",
    contract=contracts.SUMMARY,
)
ENTITIES = _classic(
    "entities", "entity", "ConversationEntityMemory.load_memory_variables", contract=contracts.ENTITIES
)
ENTITY_SUMMARY = _classic(
    "entity_summary", "entity", "ConversationEntityMemory.save_context", contract=contracts.SUMMARY
)
TRIPLES = _classic("triples", "kg", "ConversationKGMemory.get_knowledge_triplets", contract=contracts.TRIPLES)
HISTORY = CallSite(
    id="langchain.history",
    side="write",
    where=(
        f"{MIDDLEWARE}:SummarizationMiddleware._create_summary",
        f"{MIDDLEWARE}:SummarizationMiddleware._acreate_summary",
    ),
    contract=contracts.HISTORY,
    after_failure="unchanged",
)
MEMORIES = CallSite(
    id="langchain.memories",
    side="write",
    where=(f"{MANAGERS}:MemoryManager", f"{MANAGERS}:create_thread_extractor"),
    contract=contracts.MEMORIES,
    after_failure="unchanged",
)
"""langmem's managers and thread extractors, which ask through trustcall: for new memories, for changes of
those there are, and for repairs of what it cannot use. What is to be called stands in the request."""
RUNNING_SUMMARY = CallSite(
    id="langchain.running_summary",
    side="write",
    where=(f"{RUNNING}:summarize_messages", f"{RUNNING}:asummarize_messages"),
    contract=contracts.HISTORY,
    after_failure="unchanged",
)
ASKED = CallSite(
    id="langchain.asked",
    side="write",
    where=("hymem_langchain.models:ChatHyMemory._generate",),
    contract=contracts.TEXT,
    after_failure="unchanged",
)
"""A `ChatHyMemory` that somebody asks himself, or gives to code that no catalogue knows."""

CALL_SITES = (
    SUMMARY,
    ENTITIES,
    ENTITY_SUMMARY,
    TRIPLES,
    HISTORY,
    MEMORIES,
    RUNNING_SUMMARY,
    ASKED,
    CallSite(
        id="langchain.graph_entities",
        side="read",
        where=(f"{COMMUNITY}.kg:ConversationKGMemory.get_current_entities",),
    ),
    CallSite(
        id="langchain.search",
        side="read",
        where=(f"{MANAGERS}:MemoryStoreManager", f"{MANAGERS}:create_memory_searcher"),
    ),
    CallSite(
        id="langchain.prompts",
        side="read",
        where=(
            "langmem.prompts.gradient:GradientPromptOptimizer",
            "langmem.prompts.metaprompt:MetaPromptOptimizer",
            "langmem.prompts.optimization:MultiPromptOptimizer",
            "langmem.prompts.stateful:update_general",
            "langmem.prompts.stateless:PromptMemory",
            "langmem.prompts.stateless:PromptMemoryMultiple",
        ),
    ),
    CallSite(
        id="langchain.middleware",
        side="read",
        where=(
            "langchain.agents.middleware.auto_mode:AutoModeMiddleware",
            "langchain.agents.middleware.model_router:ModelRouterMiddleware",
            "langchain.agents.middleware.tool_emulator:LLMToolEmulator",
            "langchain.agents.middleware.tool_selection:LLMToolSelectorMiddleware",
        ),
    ),
)

BY_ID = {site.id: site for site in CALL_SITES}
