"""Every LLM call that Mem0 makes, writes and reads, in every pinned version."""

from __future__ import annotations

from typing import Any

from hymem.contract import Contract
from hymem.integration import CallSite

from . import contracts
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
    prompt_tokens=1_030,
)
DECIDE = CallSite(
    id="mem0.decide",
    side="write",
    where=_both("_add_to_vector_store"),
    versions="<2",
    contract=DECISION,
    after_failure="unchanged",
    prompt_tokens=1_500,
)
EXTRACT_ADDITIVE = CallSite(
    id="mem0.extract_additive",
    side="write",
    where=_both("_add_to_vector_store"),
    versions=">=2",
    contract=ADDITIVE,
    after_failure="unchanged",
    prompt_tokens=8_610,
)
PROCEDURAL_MEMORY = CallSite(
    id="mem0.procedural",
    side="write",
    where=_both("_create_procedural_memory"),
    contract=PROCEDURAL,
    after_failure="unchanged",
    prompt_tokens=1_210,
)


def _graph(name: str, method: str, contract: Contract[Any] | None = None) -> CallSite:
    where = tuple(f"{module}.{method}" for module in _GRAPHS)
    if contract is None:
        return CallSite(id=f"mem0.graph.{name}", side="read", where=where, versions="<2")
    return CallSite(
        id=f"mem0.graph.{name}",
        side="write",
        where=where,
        versions="<2",
        contract=contract,
        after_failure="unchanged",
        opt_in="graph_writes",
    )


_GRAPHS = (
    "mem0.memory.graph_memory:MemoryGraph",
    "mem0.memory.kuzu_memory:MemoryGraph",
    "mem0.memory.memgraph_memory:MemoryGraph",
    "mem0.memory.apache_age_memory:MemoryGraph",
    "mem0.graphs.neptune.base:NeptuneBase",
)
GRAPH_ENTITIES = _graph("entities", "_retrieve_nodes_from_data", contracts.GRAPH_ENTITIES)
GRAPH_RELATIONS = _graph("relations", "_establish_nodes_relations_from_data", contracts.GRAPH_RELATIONS)
GRAPH_DELETIONS = _graph("deletions", "_get_delete_entities_from_search_output", contracts.GRAPH_DELETIONS)
GRAPH_FORGET = _graph("forget", "_establish_nodes_relations_from_data", contracts.GRAPH_FORGET)
GRAPH_TOOLS = {
    GRAPH_ENTITIES.id: {
        "extract_entities": GRAPH_ENTITIES,
        "establish_relationships": GRAPH_RELATIONS,
        "delete_graph_memory": GRAPH_DELETIONS,
    },
    GRAPH_FORGET.id: {"extract_entities": GRAPH_ENTITIES, "establish_relationships": GRAPH_FORGET},
}
"""The scope that a graph call is made in → the function it offers the model → its call site."""

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
    GRAPH_ENTITIES,
    GRAPH_RELATIONS,
    GRAPH_DELETIONS,
    GRAPH_FORGET,
    _graph("search", "_retrieve_nodes_from_data"),
    CallSite(id="mem0.describe_image", side="read", where=("mem0.memory.utils:get_image_description",)),
    CallSite(
        id="mem0.rerank",
        side="read",
        where=("mem0.reranker.llm_reranker:LLMReranker.rerank",),
        versions=">=1",
    ),
    CallSite(id="mem0.proxy", side="read", where=("mem0.proxy.main:Completions.create",)),
)
"""The graph's writes are the same functions as its search, and need tool calling, which vLLM serves
only with two further flags: so they move only where `graph_writes` asks for it."""

BY_ID = {site.id: site for site in (*CALL_SITES, UNKNOWN)}
