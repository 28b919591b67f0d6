"""Feedback: one function asks for a keyword, a judgement, operations, an approval, and an answer."""

from __future__ import annotations

import json

import pytest
from memos_bank import installed, openai
from packaging.version import Version

if installed < Version("2"):
    pytest.skip("from 2.0 on", allow_module_level=True)

import hymem_memos
from hymem import WriterUnavailable

JUDGED = {
    "validity": "true",
    "user_attitude": "dissatisfied",
    "corrected_info": "Likes json.",
    "key": "food",
    "tags": ["food"],
}


@pytest.fixture
def feedback(hymem_writer, hymem_main):
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory
    from memos.mem_feedback.feedback import MemFeedback

    hymem_memos.enable(base_url=hymem_writer.base_url)
    made = MemFeedback.__new__(MemFeedback)
    made.llm = LLMFactory.from_config(LLMConfigFactory.model_validate(openai(hymem_main)))
    return made


def memory(text):
    from memos.mem_feedback.utils import make_mem_item

    return make_mem_item(text)


@pytest.mark.hymem_short
def test_the_writer_judges_and_the_main_model_answers(feedback, hymem_writer, hymem_main, events):
    hymem_writer.reply(None, f"```json\n{json.dumps([JUDGED])}\n```")
    hymem_writer.reply("if_keyword_replace", '{"if_keyword_replace": false}')
    hymem_main.reply(None, "I am sorry.")
    assert feedback._keyword_replace_judgement("No!") == {"if_keyword_replace": "false"}
    assert feedback._feedback_judgement([{"role": "user", "content": "Food?"}], "No!") == [JUDGED]
    assert feedback._generate_answer([], "No!", True) == "I am sorry."
    assert [event.site for event in events] == ["memos.feedback-keyword", "memos.feedback-judge"]
    assert len(hymem_main.chats) == 1
    assert {sent.json["temperature"] for sent in hymem_writer.chats} == {0.0}  # upstream asks for 0.3


def test_operations_and_their_approval(feedback, hymem_writer, hymem_main, events):
    """Both are asked through a pool."""
    old = [memory(f"Likes thing number {at}, and json.") for at in range(5)]
    said = [
        {"id": each.id, "text": each.memory.replace("thing", "item"), "operation": "update"} for each in old
    ]
    said = [{**made, "old_memory": each.memory} for made, each in zip(said, old, strict=True)]
    approved = [{"id": each.id, "judgement": "UPDATE_APPROVED", "reason": ""} for each in old]
    hymem_writer.reply("operations_judgement", json.dumps(approved))
    hymem_writer.reply(lambda body: "operations_judgement" not in str(body), json.dumps({"operations": said}))
    done = []
    feedback._single_update_operation = lambda before, new, *args, operation: done.append(operation["text"])
    feedback.semantics_feedback("ann", "ann", memory("Likes items."), old, "", [], {})
    assert set(done) == {each["text"] for each in said}
    assert {event.site for event in events} == {"memos.feedback-operations", "memos.feedback-approve"}
    assert {event.outcome for event in events} == {"ok"}
    assert hymem_main.chats == []


def test_an_update_that_names_nothing_is_an_addition(feedback, hymem_writer, events):
    """Upstream drops it."""
    hymem_writer.reply(None, json.dumps({"operations": [{"text": "Likes tea.", "operation": "UPDATE"}]}))
    added = []
    feedback._single_add_operation = lambda old, new, *args: added.append(new.memory) or {"id": "1"}
    feedback.semantics_feedback("ann", "ann", memory("Likes tea."), [memory("Likes coffee.")], "", [], {})
    assert added == ["Likes tea."]


def test_what_is_asked_inside_by_others_stays(feedback, hymem_writer, hymem_main):
    """A reranker of the user's own, say."""
    hymem_writer.reply(None, json.dumps({"operations": []}))
    hymem_main.reply(None, "mine")
    asked = []

    def retrieve(*args, **kwargs):
        asked.append(feedback.llm.generate([{"role": "user", "content": "Which is best?"}]))
        return [memory("Likes coffee.")]

    feedback._retrieve = retrieve
    said = [{"role": "user", "content": "What do I like?"}]
    feedback.semantics_feedback("ann", "ann", memory("Likes tea."), [], "", said, {})
    assert asked == ["mine", "mine"]
    assert len(hymem_writer.chats) == 1


def test_feedback_that_comes_to_nothing_is_an_error(feedback, hymem_writer, hymem_main):
    """Upstream says that nothing was to be changed."""
    hymem_writer.reply(None, None, status=500, body={})
    with pytest.raises(WriterUnavailable):
        feedback.process_feedback("ann", "ann", [{"role": "user", "content": "Food?"}], "No!")
    assert hymem_main.chats == []
