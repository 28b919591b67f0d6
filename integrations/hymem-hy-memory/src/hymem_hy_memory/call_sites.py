"""Every LLM call that the Hy-Memory SDK makes, writes and reads, in every pinned version.

Each is made by a function of its own, and that function is what tells which call site it is; only the
supplement asks for three things in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from hymem.contract import CallFacts, Contract
from hymem.integration import CallSite

from . import contracts

AGENT = "hy_memory.agent"
CODING = "hy_memory.coding"
PIPELINES = "hy_memory.pipelines"
V1, V2 = "<2", ">=2"


def _write(
    name: str,
    contract: Contract[Any],
    where: str,
    versions: str = "",
    *,
    after: Literal["unchanged", "turn lost", "raw text stored"] = "unchanged",
    detached: bool = False,
    prompt_tokens: int = 0,
) -> CallSite:
    return CallSite(
        f"hy-memory.{name}", "write", (where,), versions, contract, after, detached, "", prompt_tokens
    )


def _read(name: str, *where: str, versions: str = "") -> CallSite:
    return CallSite(f"hy-memory.{name}", "read", where, versions)


# -- chat ----------------------------------------------------------------------------------------

EXTRACT = _write("extract", contracts.EXTRACT, f"{AGENT}.extractor:Extractor.extract", prompt_tokens=2642)
"""Of each add, which has not succeeded then. Before 2.0 what was said is kept as raw text."""
RECONCILE = _write(
    "reconcile", contracts.RECONCILE, f"{AGENT}.reconciler:MemoryReconciler.reconcile", prompt_tokens=1942
)
"""Where there is something like it already. If it fails, all that is new is added as it is."""
QUERIES = _write(
    "search-queries",
    contracts.QUERIES,
    f"{AGENT}.reconciler:MemoryReconciler._generate_search_queries",
    prompt_tokens=178,
)
ROLLING = _write(
    "rolling-summary",
    contracts.ROLLED,
    f"{AGENT}.rolling_summary:RollingSummarizer.summarize",
    V1,
    prompt_tokens=530,
)
SUMMARIZER = _write("summary", contracts.SUMMARY, f"{AGENT}.summarizer:Summarizer.summarize", V1)
"""Of programs that use the class themselves; no client does."""

# -- sessions ------------------------------------------------------------------------------------

BOUNDARIES = _write(
    "boundaries",
    contracts.BOUNDARIES,
    f"{AGENT}.episode_summary:finalize_dynamic_episode_capsules",
    V2,
    prompt_tokens=237,
)
"""And, of the same shape, their correction."""
CAPSULE = _write(
    "capsule",
    contracts.CAPSULE,
    f"{AGENT}.episode_summary:finalize_dynamic_episode_capsules.generate_segments.summarize",
    V2,
    prompt_tokens=209,
)
NARRATIVE = _write(
    "session", contracts.SUMMARY, f"{AGENT}.episode_summary:finalize_session_episode", V2, prompt_tokens=166
)
EPISODE = _write(
    "episode-summary",
    contracts.SUMMARY,
    f"{AGENT}.episode_summary:_generate",
    V2,
    after="turn lost",
    detached=True,
)
"""Of an episode that is over, once. Its facts are there in any case."""
TOPIC = _write(
    "topic-summary", contracts.SUMMARY, f"{PIPELINES}._graph.topic_summary:_generate", V2, detached=True
)

# -- work with tools -----------------------------------------------------------------------------

SCENE = _write("scene", contracts.SCENE, f"{CODING}.judge:classify_messages_scene", V2, prompt_tokens=550)
"""If it fails, what was said goes to the chat store, without what the tools said."""
IS_CODING = _write(
    "is-coding", contracts.IS_CODING, f"{CODING}.judge:classify_messages_is_coding", V1, prompt_tokens=332
)
WORK = _write(
    "coding-extract",
    contracts.WORK,
    f"{CODING}.extractor:CodingMemoryExtractor.extract",
    V2,
    after="turn lost",
    prompt_tokens=4970,
)
WORK_1 = _write(
    "coding-extract-1",
    contracts.WORK_1,
    f"{CODING}.extractor:CodingMemoryExtractor.extract",
    V1,
    after="turn lost",
    prompt_tokens=1380,
)
DRAFTS = _write(
    "coding-reconcile",
    contracts.DRAFTS,
    f"{CODING}.reconciler:CodingMemoryReconciler._llm_decide",
    V2,
    prompt_tokens=716,
)
"""If it fails, every draft is added."""
DRAFTS_1 = _write(
    "coding-reconcile-1",
    contracts.DRAFTS_1,
    f"{CODING}.reconciler:CodingMemoryReconciler._llm_decide",
    V1,
    prompt_tokens=716,
)
SUPERSEDES = _write(
    "fact-reconcile",
    contracts.SUPERSEDES,
    f"{CODING}.fact_reconciler:WorkingFactReconciler._llm_decide",
    V2,
    prompt_tokens=954,
)
"""If it fails, the fact is stored, and takes no other's place."""
CHAIN = _write(
    "fact-summary",
    contracts.SUMMARY,
    f"{CODING}.fact_reconciler:WorkingFactReconciler._summarize_chain",
    V2,
    prompt_tokens=865,
)

# -- System 2 ------------------------------------------------------------------------------------

SYSTEM2 = _write(
    "system2", contracts.THOUGHTS, f"{PIPELINES}.system2_agent:run_system2_agent", prompt_tokens=1804
)
"""Of `evolve()`, `digest()` before 2.0. If it fails, the facts are asked about again next time."""
PROMOTION = _write(
    "profile-promotion",
    contracts.PROMOTED,
    f"{PIPELINES}.system2_agent:run_profile_fact_promotion",
    V2,
)
RETIREMENT = _write("forget", contracts.RETIRED, f"{PIPELINES}.system2_agent:run_forget_retirement", V2)
BEHAVIOUR = _write(
    "behaviour",
    contracts.ABSTRACTED,
    f"{PIPELINES}.cross_domain_sweeper:CrossDomainSweeper._ensure_beh_embeddings",
)
CORE = _write(
    "core-pattern",
    contracts.INDUCED,
    f"{PIPELINES}.cross_domain_sweeper:CrossDomainSweeper._process_cluster",
)
"""Never reached with Kuzu."""
CATALOG = _write(
    "catalog",
    contracts.CATALOG,
    f"{PIPELINES}.balanced_catalog:_run_balanced_catalog_generation_unlocked",
    V2,
)
SUPPLEMENT = _write(
    "supplement",
    contracts.CATALOG,
    f"{PIPELINES}.specific_supplement:_run_specific_supplement_generation_unlocked",
    V2,
)
SUPPLEMENT_CLAUSES = _write("supplement-clauses", contracts.CLAUSES, "hymem_hy_memory.call_sites:stage", V2)
SUPPLEMENT_FORGET = _write("supplement-forget", contracts.REMOVED, "hymem_hy_memory.call_sites:stage", V2)
"""Both are asked by the function of the first, one after the other, and told by `stage`."""

# -- what is no write ----------------------------------------------------------------------------

QUERY_SCENE = _read(
    "query-scene", f"{CODING}.judge:classify_queries_scene", f"{CODING}.judge:classify_queries_is_coding"
)
REWRITE = _read(
    "query-rewrite", f"{CODING}.judge:classify_and_rewrite_queries", f"{CODING}.judge:analyze_queries"
)
CURATOR = _read("curator", f"{CODING}.curator.curator:CodingCuratorWriter._run_agent_loop", versions=V1)
"""`coding_writer="agent"` of 1.2.21: an agent that reads and writes with tools, over many turns."""
UNUSED = _read(
    "unused",
    *(
        f"{AGENT}.{where}"
        for where in (
            "abstractor:Abstractor.generate_session_summary",
            "abstractor:Abstractor.abstract_schema",
            "abstractor:Abstractor.generate_profile_summary",
            "emotion_analyzer:EmotionAnalyzer.analyze",
            "emotion_analyzer:EmotionAnalyzer.analyze_batch",
            "intention_detector:IntentionDetector.detect",
            "intention_detector:IntentionDetector.check_triggers",
            "reflector:Reflector.check_conflicts",
            "reflector:Reflector.suggest_merge",
            "reflector:Reflector.classify_update_type",
            "reflector:Reflector.detect_conflicts_v2",
            "reflector:Reflector.extract_implicit_signals",
        )
    ),
    "hy_memory.core.merger:Merger.smart_merge",
)
"""Parts that are there and that no method of a client asks anything."""

CALL_SITES = (
    *(EXTRACT, RECONCILE, QUERIES, ROLLING, SUMMARIZER),
    *(BOUNDARIES, CAPSULE, NARRATIVE, EPISODE, TOPIC),
    *(SCENE, IS_CODING, WORK, WORK_1, DRAFTS, DRAFTS_1, SUPERSEDES, CHAIN),
    *(SYSTEM2, PROMOTION, RETIREMENT, BEHAVIOUR, CORE, CATALOG),
    *(SUPPLEMENT, SUPPLEMENT_CLAUSES, SUPPLEMENT_FORGET),
    *(QUERY_SCENE, REWRITE, CURATOR, UNUSED),
)

LOST = (EXTRACT, WORK, WORK_1, SYSTEM2)
"""Whose failures the SDK takes, in some version, for a reply that had nothing to say."""


def _of_work(local: Mapping[str, Any]) -> CallFacts:
    named = (contracts.WORKSPACE, local["workspace_id"]), (contracts.BRANCH, local["branch"])
    return CallFacts({"": "", **{name: "" for name, value in named if value}})


FACTS_OF: Mapping[str, Callable[[Mapping[str, Any]], CallFacts]] = {
    EXTRACT.id: lambda local: CallFacts(
        {} if local.get("_enable_intention", True) else {contracts.NO_INTENTIONS: ""}
    ),
    RECONCILE.id: lambda local: contracts.offered(local["candidate_map"]),
    ROLLING.id: lambda local: contracts.counted(len(local["turns"])),
    BOUNDARIES.id: lambda local: contracts.counted(len(local["messages"])),
    WORK_1.id: _of_work,
    DRAFTS.id: lambda local: contracts.offered_to_drafts(local["candidates_per_draft"], "experience_id"),
    DRAFTS_1.id: lambda local: contracts.offered_to_drafts(local["candidates_per_draft"], "memory_id"),
    SUPERSEDES.id: lambda local: contracts.offered_to_drafts(local["candidates"], "fact_id"),
    SYSTEM2.id: lambda local: contracts.materials(local["materials"]),
    PROMOTION.id: lambda local: contracts.offered(local["selected_pool"]),
    RETIREMENT.id: lambda local: contracts.offered(local["allowed"]),
    CATALOG.id: lambda local: contracts.counted(len(local["candidate_facts"])),
    SUPPLEMENT.id: lambda local: contracts.counted(min(len(local["facts"]), 120)),
    SUPPLEMENT_FORGET.id: lambda local: contracts.counted(len(local["entries"])),
}
"""What the function that asks has offered, out of its local variables."""


def stage(site: CallSite, local: Mapping[str, Any]) -> CallSite:
    """Which of its three things the supplement asks for: it has more variables each time."""
    if site is not SUPPLEMENT:
        return site
    if "rebuilt_entries" in local:
        return SUPPLEMENT_FORGET
    return SUPPLEMENT_CLAUSES if "parsed" in local else site
