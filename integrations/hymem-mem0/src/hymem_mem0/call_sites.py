"""Every LLM call that Mem0 makes, writes and reads, in every pinned version."""

from __future__ import annotations

from hymem.integration import CallSite

from .contracts import ADDITIVE, DECISION, FACTS, PROCEDURAL

_MAIN = "mem0.memory.main"


def _both(method: str) -> tuple[str, str]:
    return (f"{_MAIN}:Memory.{method}", f"{_MAIN}:AsyncMemory.{method}")


EXTRACT_FACTS = CallSite(
    id="mem0.extract_facts",
    side="write",
    where=_both("_add_to_vector_store"),
    versions="<2",
    contract=FACTS,
    after_failure="unchanged",
)
DECIDE = CallSite(
    id="mem0.decide",
    side="write",
    where=_both("_add_to_vector_store"),
    versions="<2",
    contract=DECISION,
    after_failure="unchanged",
)
EXTRACT_ADDITIVE = CallSite(
    id="mem0.extract_additive",
    side="write",
    where=_both("_add_to_vector_store"),
    versions=">=2",
    contract=ADDITIVE,
    after_failure="unchanged",
)
PROCEDURAL_MEMORY = CallSite(
    id="mem0.procedural",
    side="write",
    where=_both("_create_procedural_memory"),
    contract=PROCEDURAL,
    after_failure="unchanged",
)
UNKNOWN = CallSite(
    id="mem0.unknown",
    side="write",
    where=(),
    contract=PROCEDURAL,
)
"""A call inside a write that this catalogue does not know: held to be text, and counted."""

CALL_SITES = (
    EXTRACT_FACTS,
    DECIDE,
    EXTRACT_ADDITIVE,
    PROCEDURAL_MEMORY,
    CallSite(id="mem0.describe_image", side="read", where=("mem0.memory.utils:get_image_description",)),
    CallSite(
        id="mem0.rerank",
        side="read",
        where=("mem0.reranker.llm_reranker:LLMReranker.rerank",),
        versions=">=1",
    ),
    CallSite(id="mem0.proxy", side="read", where=("mem0.proxy.main:Completions.create",)),
    *(
        CallSite(
            id=f"mem0.graph.{name}",
            side="read",
            where=(f"mem0.memory.{module}:MemoryGraph.{method}",),
            versions="<2",
        )
        for module in ("graph_memory", "kuzu_memory", "memgraph_memory")
        for name, method in (
            ("entities", "_retrieve_nodes_from_data"),
            ("relations", "_establish_nodes_relations_from_data"),
            ("deletions", "_get_delete_entities_from_search_output"),
        )
    ),
)
"""Graph calls stay with the main model: they need tool calling, which vLLM serves only with two
further flags."""

BY_ID = {site.id: site for site in (*CALL_SITES, UNKNOWN)}
