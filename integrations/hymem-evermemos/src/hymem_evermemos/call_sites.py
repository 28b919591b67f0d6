"""Every LLM call of EverMemOS, writes and reads, in every pinned version.

`everos` asks nothing itself but a search's decider: the calls are in the algorithm packages `everalgo.*`,
each in a function of its own, and that function is what tells which call site it is.
"""

from __future__ import annotations

from typing import Any, Literal

from hymem.contract import FREE_TEXT, Contract
from hymem.integration import CallSite

from . import contracts

BOUNDARY = "everalgo.boundary.chat"
USER = "everalgo.user_memory"
AGENT = "everalgo.agent_memory"
KNOWLEDGE = "everalgo.knowledge"
RANK = "everalgo.rank"
PARSER = "everalgo.parser"


def _write(
    name: str,
    contract: Contract[Any],
    where: str,
    versions: str = "",
    *,
    after: Literal["unchanged", "turn lost"] = "unchanged",
    detached: bool = False,
    prompt_tokens: int = 0,
) -> CallSite:
    return CallSite(
        f"evermemos.{name}", "write", (where,), versions, contract, after, detached, "", prompt_tokens
    )


def _later(
    name: str, contract: Contract[Any], where: str, versions: str = "", prompt_tokens: int = 0
) -> CallSite:
    """One that `everos` makes in the background. It tries three times, and keeps what it gives up as a dead
    letter, from which hymem has it tried again."""
    return _write(
        name, contract, where, versions, after="turn lost", detached=True, prompt_tokens=prompt_tokens
    )


def _read(name: str, *where: str, versions: str = "") -> CallSite:
    return CallSite(f"evermemos.{name}", "read", where, versions)


# -- in the request ------------------------------------------------------------------------------

BOUNDARIES = _write(
    "boundaries", contracts.BOUNDARIES, f"{BOUNDARY}:_call_llm_for_batch_boundary", prompt_tokens=1266
)
"""Of each add and flush. After three flushes that fail, 1.5 sets the messages aside ("quarantine")."""
BOUNDARY_STEP = _write("boundary-step", contracts.BOUNDARY_STEP, f"{BOUNDARY}:_call_llm_for_boundary_step")
"""Of one message; asked by programs that use `everalgo` themselves, not by `everos`."""
EPISODE = _write(
    "episode",
    contracts.EPISODE,
    f"{USER}.episode:_call_llm_for_episode",
    after="turn lost",
    prompt_tokens=1691,
)
"""The messages are out of the buffer by then. hymem keeps the episode to be written later."""

# -- in the background ---------------------------------------------------------------------------

FACTS = _later("facts", contracts.FACTS, f"{USER}.atomic_fact:_call_llm_for_atomic_facts", prompt_tokens=1297)
FORESIGHT = _later(
    "foresight", contracts.FORESIGHT, f"{USER}.foresight:_call_llm_for_foresight", prompt_tokens=2547
)
PROFILE = _later(
    "profile", contracts.PROFILE, f"{USER}.profile:_call_llm_for_profile_init", prompt_tokens=896
)
PROFILE_UPDATE = _later(
    "profile-update",
    contracts.PROFILE_UPDATE,
    f"{USER}.profile:_call_llm_for_profile_update",
    prompt_tokens=1129,
)
PROFILE_COMPACT = _later(
    "profile-compact", contracts.PROFILE_COMPACT, f"{USER}.profile:_call_llm_for_profile_compact"
)
TOOLS = _later(
    "tool-calls", contracts.TOOLS, f"{AGENT}.case:_call_llm_for_tool_pre_compress", prompt_tokens=571
)
WORTH = _later("case-worth", contracts.WORTH, f"{AGENT}.case:_call_llm_for_case_filter")
CASE = _later("case", contracts.CASE, f"{AGENT}.case:_call_llm_for_case_compress", prompt_tokens=1620)
CLUSTER = _later(
    "cluster", contracts.CLUSTER, "everalgo.clustering.algorithm:_call_llm_for_cluster_assignment"
)
SKILLS = _later("skills", contracts.SKILLS, f"{AGENT}.skill:_call_llm_for_skill_extract", prompt_tokens=1683)
MATURITY = _later("skill-maturity", contracts.MATURITY, f"{AGENT}.skill_ops:_call_llm_for_maturity")
"""Off in `everos`."""
REFLECTION = _later(
    "reflection", contracts.REFLECTION, f"{USER}.reflect:EpisodeReflector._call_llm", versions=">=1.1"
)
"""Off unless `ome.toml` switches it on."""
AGENT_PROFILE = _write(
    "agent-profile",
    contracts.AGENT_PROFILE,
    f"{AGENT}.profile:_call_llm_for_profile_update",
    versions=">=1.1",
)
"""Asked by programs that use `everalgo` themselves, not by `everos`."""

# -- documents -----------------------------------------------------------------------------------

TOPICS = _write(
    "topics",
    contracts.TOPICS,
    f"{KNOWLEDGE}.extractor:_aextract_batch",
    ">=1.1",
    after="turn lost",
    prompt_tokens=1512,
)
"""The document is refused then, and can be given again."""
SUMMARY = _write(
    "document-summary", contracts.SUMMARY, f"{KNOWLEDGE}._batch_merge:amerge_doc_summary", ">=1.1"
)
MERGES = _write("topic-merges", contracts.MERGES, f"{KNOWLEDGE}._batch_merge:amerge_topics", ">=1.1")
SPLITS = _write("topic-splits", contracts.SPLITS, f"{KNOWLEDGE}._postprocess:asplit_unsplit_leaves", ">=1.1")
ASSIGNMENTS = _write(
    "block-assignments", contracts.ASSIGNMENTS, f"{KNOWLEDGE}._postprocess:aassign_uncovered_blocks", ">=1.1"
)
CATEGORY = _write("category", contracts.CATEGORY, f"{KNOWLEDGE}._classify:aclassify_category", ">=1.1")

REFINEMENTS = (SUMMARY, MERGES, SPLITS, ASSIGNMENTS, CATEGORY)
"""Passes over a document whose topics are had. A bad reply leaves those as they are, as upstream."""

UNKNOWN = _write("unknown", FREE_TEXT, "hymem_evermemos.models:HyMemoryLLM.chat")
"""A `HyMemoryLLM` that is asked by code which is none of these."""

# -- what is no write ----------------------------------------------------------------------------

SUFFICIENCY = _read("sufficiency", f"{RANK}.agentic:_call_llm_for_sufficiency")
QUERIES = _read("queries", f"{RANK}.agentic:_call_llm_for_multi_queries")
REFINED = _read("refined-query", f"{RANK}.agentic:_call_llm_for_refined_query")
RERANK = _read("rerank", f"{RANK}.rerank:_call_llm_for_rerank")
DECIDER = _read("decider", "everos.memory.search.llm_multiround:LLMRoundDecider.__call__", versions=">=1.3.1")
PARSED = _read(
    "parse",
    f"{PARSER}.image:_aparse_single",
    f"{PARSER}.image:_aparse_tall",
    f"{PARSER}.audio:aparse",
    f"{PARSER}.document:_aparse_pdf",
    f"{PARSER}.document:_aparse_html",
    f"{PARSER}.document:_aparse_office",
    f"{PARSER}.document:_ocr_inline_images",
    versions=">=1.1",
)
"""What makes text of pictures, sound and documents. It has a client of its own (`[multimodal]`)."""
JUDGE = _read("judge", "everalgo.testing.judge:allm_judge._one_run")

CALL_SITES = (
    *(BOUNDARIES, BOUNDARY_STEP, EPISODE, FACTS, FORESIGHT, PROFILE, PROFILE_UPDATE, PROFILE_COMPACT),
    *(TOOLS, WORTH, CASE, CLUSTER, SKILLS, MATURITY, AGENT_PROFILE, REFLECTION),
    *(TOPICS, SUMMARY, MERGES, SPLITS, ASSIGNMENTS, CATEGORY, UNKNOWN),
    *(SUFFICIENCY, QUERIES, REFINED, RERANK, DECIDER, PARSED, JUDGE),
)
BY_ID = {site.id: site for site in CALL_SITES}
