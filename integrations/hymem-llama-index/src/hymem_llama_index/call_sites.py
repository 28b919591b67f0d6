"""Every LLM call with which LlamaIndex keeps memory, writes and reads, in every pinned version.

Extractors of property graphs index documents; they are routed by their own argument `llm`, and by nothing
else. What answers, reranks or retrieves is not memory and is not looked for.
"""

from __future__ import annotations

from hymem.integration import CallSite

from . import contracts

FACT = "llama_index.core.memory.memory_blocks.fact"
BUFFER = "llama_index.core.memory.chat_summary_memory_buffer"
GRAPHS = "llama_index.core.indices.property_graph.transformations"

EXTRACT = CallSite(
    id="llama-index.extract",
    side="write",
    where=(f"{FACT}:FactExtractionMemoryBlock._aput",),
    contract=contracts.FACTS,
    after_failure="turn lost",
)
"""The messages are archived by then, and never offered again; with hymem they are."""
CONDENSE = CallSite(
    id="llama-index.condense",
    side="write",
    where=(f"{FACT}:FactExtractionMemoryBlock._aput",),
    contract=contracts.CONDENSED,
    after_failure="unchanged",
)
HISTORY = CallSite(
    id="llama-index.history",
    side="write",
    where=(f"{BUFFER}:ChatSummaryMemoryBuffer._summarize_oldest_chat_history",),
    contract=contracts.HISTORY,
    after_failure="turn lost",
)
ASKED = CallSite(
    id="llama-index.asked",
    side="write",
    where=("hymem_llama_index.models:HyMemoryLLM._chat",),
    contract=contracts.TEXT,
    after_failure="unchanged",
)
"""A `HyMemoryLLM` that somebody asks himself, or gives to code that no catalogue knows: an extractor of a
property graph, say."""

CALL_SITES = (
    EXTRACT,
    CONDENSE,
    HISTORY,
    ASKED,
    CallSite(
        id="llama-index.graph",
        side="read",
        where=(
            f"{GRAPHS}.simple_llm:SimpleLLMPathExtractor._aextract",
            f"{GRAPHS}.dynamic_llm:DynamicLLMPathExtractor",
            f"{GRAPHS}.schema_llm:SchemaLLMPathExtractor._aextract",
        ),
    ),
)

BY_ID = {site.id: site for site in CALL_SITES}
