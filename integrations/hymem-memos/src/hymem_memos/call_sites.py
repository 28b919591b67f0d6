"""Every LLM call of MemOS, writes and reads, in every pinned version.

MemOS asks all of its LLMs by `generate`, and one object is often asked by both sides: the function that
asks tells them apart.
"""

from __future__ import annotations

from typing import Any, Literal

from hymem.contract import Contract
from hymem.integration import CallSite

from . import contracts

READER = "memos.mem_reader"
SIMPLE = f"{READER}.simple_struct"
MULTI = f"{READER}.multi_modal_struct"
PREFERENCES = f"{READER}.read_pref_memory.process_preference_memory"
SKILLS = f"{READER}.read_skill_memory.process_skill_memory"
TEXTUAL = "memos.memories.textual"
PREFER = f"{TEXTUAL}.prefer_text_memory"
ORGANIZE = f"{TEXTUAL}.tree_text_memory.organize"
FEEDBACK = "memos.mem_feedback.feedback"
SCHEDULER = "memos.mem_scheduler"


def _write(
    name: str,
    contract: Contract[Any],
    *where: str,
    versions: str = "",
    after: Literal["unchanged", "turn lost", "raw text stored"] = "unchanged",
    prompt_tokens: int = 0,
) -> CallSite:
    return CallSite(f"memos.{name}", "write", where, versions, contract, after, prompt_tokens=prompt_tokens)


# -- the mem reader ------------------------------------------------------------------------------

CHAT = _write(
    "extract",
    contracts.MEMORIES,
    f"{SIMPLE}:SimpleStructMemReader._process_chat_data",
    f"{SIMPLE}:SimpleStructMemReader._get_llm_response",
    f"{SIMPLE}:SimpleStructMemReader._safe_generate",
    f"{READER}.strategy_struct:StrategyStructMemReader._get_llm_response",
    after="raw text stored",
)
"""Before 1.1 the error is raised, and nothing stored."""
MULTIMODAL = _write(
    "extract-multimodal",
    contracts.MEMORIES_OR_ONE,
    f"{MULTI}:MultiModalStructMemReader._get_llm_response",
    versions=">=2",
    after="raw text stored",
)
DOCUMENT = _write(
    "extract-document",
    contracts.DOCUMENT,
    f"{SIMPLE}:_build_node",
    f"{SIMPLE}:SimpleStructMemReader._process_doc_data",
    after="turn lost",
)
FILE = _write(
    "extract-file",
    contracts.MEMORIES_OR_ONE,
    f"{READER}.read_multi_modal.file_content_parser:FileContentParser._get_doc_llm_response",
    versions=">=2",
    after="turn lost",
)
MERGE = _write(
    "merge", contracts.MERGE, f"{MULTI}:MultiModalStructMemReader._merge_memories_with_llm", versions=">=2"
)
TRAJECTORY = _write(
    "tool-trajectory",
    contracts.TRAJECTORIES,
    f"{MULTI}:MultiModalStructMemReader._get_llm_tool_trajectory_response",
    versions=">=2",
    after="turn lost",
)
TASKS = _write("skill-tasks", contracts.TASKS, f"{SKILLS}:_split_task_chunk_by_llm", versions=">=2.0.5")
SKILL = _write(
    "skill",
    contracts.SKILL,
    f"{SKILLS}:_extract_skill_memory_by_llm",
    f"{SKILLS}:_extract_skill_memory_by_llm_md",
    versions=">=2.0.5",
    after="turn lost",
)
SKILL_PART = _write(
    "skill-part", contracts.SKILL_PART, f"{SKILLS}:_generate_content_by_llm", versions=">=2.0.5"
)
EXPLICIT = _write(
    "explicit-preferences",
    contracts.EXPLICIT,
    f"{PREFERENCES}:_extract_explicit_preference",
    f"{PREFER}.extractor:NaiveExtractor.extract_explicit_preference",
    versions=">=1.1",
    after="turn lost",
)
IMPLICIT = _write(
    "implicit-preferences",
    contracts.IMPLICIT,
    f"{PREFERENCES}:_extract_implicit_preference",
    f"{PREFER}.extractor:NaiveExtractor.extract_implicit_preference",
    versions=">=2",
    after="turn lost",
)
IMPLICIT_ONE = _write(
    "implicit-preference",
    contracts.IMPLICIT_ONE,
    f"{PREFER}.extractor:NaiveExtractor.extract_implicit_preference",
    versions=">=1.1,<2",
    after="turn lost",
)
KEPT = _write(
    "filter",
    contracts.KEPT,
    f"{SIMPLE}:SimpleStructMemReader.filter_hallucination_in_memories",
    "memos.multi_mem_cube.single_cube:SingleCubeView.add_before_search",
    versions=">=2",
)
REWRITTEN = _write(
    "rewrite", contracts.REWRITTEN, f"{SIMPLE}:SimpleStructMemReader.rewrite_memories", versions=">=2"
)

# -- textual memories ----------------------------------------------------------------------------

GENERAL = _write("general-extract", contracts.MEMORIES, f"{TEXTUAL}.general:GeneralTextMemory.extract")
NAIVE = _write("naive-extract", contracts.NAIVE, f"{TEXTUAL}.naive:NaiveTextMemory.extract")
SAME = _write(
    "preference-same",
    contracts.SAME,
    f"{PREFER}.adder:NaiveAdder._judge_update_or_add_fast",
    versions=">=1.1",
)
UPDATED = _write(
    "preference-update",
    contracts.PREFERENCE_UPDATE,
    f"{PREFER}.adder:NaiveAdder._judge_update_or_add_fine",
    versions=">=1.1",
)
DUPLICATE = _write(
    "preference-duplicate",
    contracts.DUPLICATE,
    f"{PREFER}.adder:NaiveAdder._judge_dup_with_text_mem",
    versions=">=2",
)
TRACE = _write(
    "preference-operations",
    contracts.TRACE,
    f"{PREFER}.adder:NaiveAdder._judge_update_or_add_trace_op",
    versions=">=1.1",
)

# -- what reorganises a tree ---------------------------------------------------------------------

CLUSTERS = _write(
    "clusters", contracts.CLUSTERS, f"{ORGANIZE}.reorganizer:GraphStructureReorganizer._local_subcluster"
)
TOPIC = _write(
    "topic", contracts.TOPIC, f"{ORGANIZE}.reorganizer:GraphStructureReorganizer._summarize_cluster"
)
DETECT = _write("relation", contracts.RELATION, f"{ORGANIZE}.handler:NodeHandler.detect", versions=">=1")
RESOLVE = _write(
    "resolve",
    contracts.ANSWER,
    f"{ORGANIZE}.handler:NodeHandler.resolve",
    f"{ORGANIZE}.conflict:ConflictHandler.resolve",
    f"{ORGANIZE}.redundancy:RedundancyHandler.resolve_two_nodes",
)
DETECT_OLD = _write(
    "conflict",
    contracts.YES_OR_NO,
    f"{ORGANIZE}.conflict:ConflictHandler.detect",
    f"{ORGANIZE}.redundancy:RedundancyHandler.detect",
    versions="<1",
)
MERGED_TEXT = _write(
    "merge-text",
    contracts.TEXT,
    f"{ORGANIZE}.redundancy:RedundancyHandler.resolve_one_node",
    versions="<1",
)
REASONED = _write(
    "relation-reasoning",
    contracts.REASONED,
    f"{ORGANIZE}.relation_reason_detector:RelationAndReasoningDetector._call_llm",
)
"""One function for a relation in a word, a fact in a sentence and a concept as an object."""

# -- feedback ------------------------------------------------------------------------------------

FEEDBACK_ASKED = _write(
    "feedback", contracts.TEXT, f"{FEEDBACK}:MemFeedback._get_llm_response", versions=">=2"
)
"""Asks for all of the following; who asks it tells which."""
KEYWORD = _write(
    "feedback-keyword",
    contracts.KEYWORD,
    f"{FEEDBACK}:MemFeedback._keyword_replace_judgement",
    versions=">=2",
)
JUDGED = _write(
    "feedback-judge", contracts.JUDGED, f"{FEEDBACK}:MemFeedback._feedback_judgement", versions=">=2"
)
OPERATIONS = _write(
    "feedback-operations",
    contracts.OPERATIONS,
    f"{FEEDBACK}:MemFeedback.semantics_feedback",
    versions=">=2",
)
APPROVED = _write(
    "feedback-approve", contracts.APPROVED, f"{FEEDBACK}:MemFeedback.filter_fault_update", versions=">=2"
)

# -- dreams --------------------------------------------------------------------------------------

MOTIVES = _write(
    "dream-motives",
    contracts.MOTIVES,
    "memos.dream.pipeline.motive:MotiveFormation._llm_form",
    versions=">=2",
)
INSIGHT = _write(
    "dream-insight",
    contracts.INSIGHT,
    "memos.dream.pipeline.reasoning:ConsolidationReasoning._llm_reason",
    versions=">=2",
)
BINDING = _write(
    "dream-binding",
    contracts.BINDING,
    "memos.dream.contextualization:DreamContextualizer._llm_bind_candidate_pool",
    versions=">=2",
)
CONTEXT = _write(
    "dream-context",
    contracts.CONTEXT,
    "memos.dream.contextualization:DreamContextualizer._summarize_group",
    versions=">=2",
)

UNKNOWN = _write("unknown", contracts.TEXT, "hymem_memos.models:HyMemoryLLM.generate")
"""A call of an LLM that the configuration names `hy_memory`, by code that no catalogue knows."""


def _read(name: str, *where: str, versions: str = "") -> CallSite:
    return CallSite(f"memos.{name}", "read", where, versions)


_OS = "memos.mem_os"
_HANDLERS = "memos.api.handlers"
_RETRIEVE = f"{TEXTUAL}.tree_text_memory.retrieve"
_MANAGE = f"{SCHEDULER}.memory_manage_modules"
_AGENT = "memos.mem_agent.deepsearch_agent"

READS = (
    _read(
        "chat",
        f"{_OS}.core:MOSCore.chat",
        f"{_OS}.main:MOS._generate_enhanced_response_with_context",
        f"{_OS}.main:MOS.get_sub_answers.generate_answer_for_question",
        f"{_OS}.product:MOSProduct.chat",
        f"{_OS}.product:MOSProduct.chat_with_references",
        f"{_OS}.product_server:MOSServer.chat",
        "memos.mem_chat.simple:SimpleMemChat.run",
        f"{_HANDLERS}.chat_handler:ChatHandler.handle_chat_complete",
        f"{_HANDLERS}.chat_handler:ChatHandler.handle_chat_stream.generate_chat_response",
        f"{_HANDLERS}.chat_handler:ChatHandler.handle_chat_stream_playground.generate_chat_response",
        f"{_HANDLERS}.chat_handler:ChatHandler.handle_chat_stream_for_business_user.generate_chat_response",
        f"{FEEDBACK}:MemFeedback._generate_answer",
    ),
    _read(
        "suggest",
        f"{_OS}.product:MOSProduct._get_further_suggestion",
        f"{_OS}.product:MOSProduct.get_suggestion_query",
        f"{_HANDLERS}.chat_handler:ChatHandler._get_further_suggestion",
        f"{_HANDLERS}.suggestion_handler:_get_further_suggestion",
        f"{_HANDLERS}.suggestion_handler:handle_get_suggestion_queries",
    ),
    _read(
        "query",
        f"{_OS}.core:MOSCore.get_query_rewrite",
        f"{_OS}.main:MOS.cot_decompose",
        f"{SKILLS}:_rewrite_query",
    ),
    _read(
        "search",
        f"{_RETRIEVE}.reasoner:MemoryReasoner.reason",
        f"{_RETRIEVE}.task_goal_parser:TaskGoalParser._parse_fine",
        f"{_RETRIEVE}.searcher:Searcher._cot_query",
        f"{_RETRIEVE}.advanced_searcher:AdvancedSearcher.stage_retrieve",
        f"{_RETRIEVE}.advanced_searcher:AdvancedSearcher.judge_memories",
        f"{_RETRIEVE}.advanced_searcher:AdvancedSearcher.memory_recreate_enhancement",
        f"{_AGENT}:QueryRewriter.run",
        f"{_AGENT}:ReflectionAgent.run",
        f"{_AGENT}:DeepSearchMemAgent.run",
        f"{_AGENT}:DeepSearchMemAgent._generate_final_answer",
    ),
    _read(
        "schedule",
        f"{SCHEDULER}.modules.monitor:SchedulerMonitor.extract_query_keywords",
        f"{SCHEDULER}.modules.monitor:SchedulerMonitor.detect_intent",
        f"{SCHEDULER}.modules.retriever:SchedulerRetriever.rerank_memories",
        f"{SCHEDULER}.general_modules.retriever:SchedulerRetriever.rerank_memories",
        f"{SCHEDULER}.monitors.general_monitor:SchedulerGeneralMonitor.extract_query_keywords",
        f"{SCHEDULER}.monitors.general_monitor:SchedulerGeneralMonitor.detect_intent",
        f"{_MANAGE}.retriever:SchedulerRetriever.rerank_memories",
        f"{_MANAGE}.rerank_pipeline:RerankPipeline.rerank_memories",
        f"{_MANAGE}.enhancement_pipeline:EnhancementPipeline.evaluate_memory_answer_ability",
        f"{_MANAGE}.enhancement_pipeline:EnhancementPipeline._process_enhancement_batch",
        f"{_MANAGE}.enhancement_pipeline:EnhancementPipeline.recall_for_missing_memories",
        f"{_MANAGE}.memory_filter:MemoryFilter.filter_unrelated_memories",
        f"{_MANAGE}.memory_filter:MemoryFilter.filter_redundant_memories",
        f"{_MANAGE}.memory_filter:MemoryFilter.filter_unrelated_and_redundant_memories",
        f"{_MANAGE}.post_processor:MemoryPostProcessor.evaluate_memory_answer_ability",
        f"{_MANAGE}.post_processor:MemoryPostProcessor.rerank_memories",
    ),
    _read(
        "image",
        f"{READER}.read_multi_modal.image_parser:ImageParser.parse_fine",
        versions=">=2",
    ),
    _read(
        "other",
        f"{READER}.memory:Memory.process_qa_pair_summaries",
        f"{READER}.memory:Memory.process_document_summaries",
        "memos.llms.hf:HFLLM._generate_full",
        f"{SCHEDULER}.mos_for_test_scheduler:MOSForTestScheduler.chat",
        f"{SCHEDULER}.analyzer.mos_for_test_scheduler:MOSForTestScheduler._batch_assess_memories",
        f"{SCHEDULER}.analyzer.mos_for_test_scheduler:MOSForTestScheduler._assess_memory_helpfulness",
        f"{SCHEDULER}.analyzer.mos_for_test_scheduler:MOSForTestScheduler._assess_ranking_quality",
        f"{SCHEDULER}.analyzer.mos_for_test_scheduler:MOSForTestScheduler.chat",
        f"{SCHEDULER}.analyzer.scheduler_for_eval:SchedulerForEval.evaluate_memory_answer_ability",
    ),
)
"""Answering, suggesting, rewriting of queries, searching, scheduling, looking at images; and what nothing of
MemOS reaches."""

CALL_SITES = (
    *(CHAT, MULTIMODAL, DOCUMENT, FILE, MERGE, TRAJECTORY, TASKS, SKILL, SKILL_PART, EXPLICIT, IMPLICIT),
    IMPLICIT_ONE,
    *(KEPT, REWRITTEN, GENERAL, NAIVE, SAME, UPDATED, DUPLICATE, TRACE),
    *(CLUSTERS, TOPIC, DETECT, RESOLVE, DETECT_OLD, MERGED_TEXT, REASONED),
    *(FEEDBACK_ASKED, KEYWORD, JUDGED, OPERATIONS, APPROVED, MOTIVES, INSIGHT, BINDING, CONTEXT, UNKNOWN),
    *READS,
)

BY_ID = {site.id: site for site in CALL_SITES}
