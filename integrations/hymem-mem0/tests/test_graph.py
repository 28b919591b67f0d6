"""The graph of Mem0 0.1 and 1.0, on Kuzu: its writes move only where that is asked for."""

from __future__ import annotations

import json

import pytest
from mem0_bank import ADDITIVE, script

import hymem_mem0
from hymem import HymemError, SettingsError

pytestmark = pytest.mark.skipif(ADDITIVE, reason="Mem0 2 has no graph")

ENTITIES, RELATIONS, DELETIONS = "extract_entities", "establish_relationships", "delete_graph_memory"


@pytest.fixture(autouse=True)
def _registered():
    hymem_mem0.register()


@pytest.fixture
def graph(swapped, tmp_path):
    """A configuration with a graph that is to be written by the writer."""
    swapped["graph_store"] = {"provider": "kuzu", "config": {"db": str(tmp_path / "kuzu")}}
    swapped["llm"]["config"]["graph_writes"] = True
    return swapped


def tool(body):
    return body["tools"][0]["function"]["name"] if body.get("tools") else None


def call(name, arguments):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "call-1", "type": "function", "function": {"name": name, "arguments": text}}


ANN_IN_OSLO = {
    ENTITIES: [call(ENTITIES, {"entities": [{"entity": "ann", "entity_type": "person"},
                                            {"entity": "Oslo", "entity_type": "city"}]})],
    RELATIONS: [call(RELATIONS, {"entities": [
        {"source": "ann", "relationship": "lives_in", "destination": "Oslo"}]})],
    DELETIONS: [],
}  # fmt: skip


def script_graph(proxy, **calls):
    for name, made in {**ANN_IN_OSLO, **calls}.items():
        proxy.reply(lambda body, name=name: tool(body) == name, "", tool_calls=made)


def relations(made):
    found = made._run(made.memory.get_all(user_id="ann"))["relations"]
    return {(each["source"], each["relationship"], each["target"]) for each in found}


def asked(proxy):
    return [name for sent in proxy.chats if (name := tool(sent.json))]


def test_graph_writes_stay_where_they_were_unless_asked_for(bank, graph, hymem_writer, hymem_main, events):
    del graph["llm"]["config"]["graph_writes"]
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_main)
    made = bank(graph)
    made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    assert sorted(asked(hymem_main)) == sorted(ANN_IN_OSLO)
    assert asked(hymem_writer) == []
    assert {event.site for event in events} == {"mem0.extract_facts", "mem0.decide"}


def test_graph_writes_go_to_the_writer_and_its_search_does_not(bank, graph, hymem_writer, hymem_main, events):
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_writer)
    script_graph(hymem_main)
    made = bank(graph)
    made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    assert asked(hymem_writer) == [ENTITIES, RELATIONS, DELETIONS]
    assert hymem_main.chats == []
    for sent in hymem_writer.chats:
        assert sent.json["temperature"] == 0.0
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
    made.search("Where does ann live?")
    assert asked(hymem_main) == [ENTITIES]
    outcomes = {event.site: event.outcome for event in events}
    assert outcomes["mem0.graph.entities"] == outcomes["mem0.graph.relations"] == "ok"
    assert outcomes["mem0.graph.deletions"] == "empty"
    assert {event.steps for event in events} == {()}


def test_calls_that_come_in_other_shapes(bank, graph, hymem_writer, events):
    script(hymem_writer, "Lives in Oslo")
    script_graph(
        hymem_writer,
        extract_entities=[
            call(ENTITIES, {"entities": [{"name": "ann", "type": "person"}]}),
            call(ENTITIES, {"entities": [{"entity": "Oslo", "entity_type": "city"}]}),
        ],
        establish_relationships=[
            call(RELATIONS, {"entities": [{"source": "ann", "relationship": "lives_in"}]}),
            call(
                RELATIONS, '```{"entities": [{"source": "ann", "relation": "lives_in", "target": "Oslo"}]}```'
            ),
        ],
    )
    made = bank(graph)
    made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    by_site = {event.site: event for event in events}
    assert by_site["mem0.graph.entities"].steps == ("normalised",)
    assert (by_site["mem0.graph.relations"].kept, by_site["mem0.graph.relations"].dropped) == (1, 1)


def test_prose_is_asked_for_again_as_a_call(bank, graph, hymem_writer, events):
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_writer)
    hymem_writer.reply(lambda body: tool(body) == ENTITIES, "Ann and Oslo.", times=1)
    made = bank(graph)
    made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    again = [sent.json for sent in hymem_writer.chats if tool(sent.json) == ENTITIES][1]
    assert again["tool_choice"] == {"type": "function", "function": {"name": ENTITIES}}
    assert again["tools"][0]["function"]["strict"] is True
    assert {event.site: event.steps for event in events}["mem0.graph.entities"] == ("recovered",)


def test_a_server_without_its_tool_flags_is_an_error_that_names_them(bank, graph, hymem_writer, events):
    script(hymem_writer, "Lives in Oslo")
    hymem_writer.reply(
        lambda body: tool(body) is not None,
        status=400,
        body={"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice', "code": 400}},
    )
    made = bank(graph)
    with pytest.raises(HymemError, match="--enable-auto-tool-choice"):
        made.add("I live in Oslo.")


def test_deletions_are_executed_and_prose_deletes_nothing(bank, graph, hymem_writer):
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_writer)
    made = bank(graph)
    made.add("I live in Oslo.")
    gone = {"source": "ann", "relationship": "lives_in", "destination": "oslo"}
    script_graph(hymem_writer, establish_relationships=[call(RELATIONS, {"entities": []})])
    hymem_writer.reply(lambda body: tool(body) == DELETIONS, "I would delete: " + json.dumps(gone))
    made.add("I have moved.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    script_graph(
        hymem_writer,
        establish_relationships=[call(RELATIONS, {"entities": []})],
        delete_graph_memory=[call(DELETIONS, gone), call(DELETIONS, {"source": "ann"})],
    )
    made.add("I have moved.")
    assert relations(made) == set()


def test_deletions_in_the_wrong_place_are_counted(bank, graph, hymem_writer, events):
    """A server whose tool parser is another model's leaves calls in the text."""
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_writer)
    said = '<tool_call>{"name": "delete_graph_memory", "arguments": {"source": "ann"}}</tool_call>'
    hymem_writer.reply(lambda body: tool(body) == DELETIONS, said)
    bank(graph).add("I live in Oslo.")
    event = next(event for event in events if event.site == "mem0.graph.deletions")
    assert (event.outcome, event.dropped) == ("partial", 1)


def test_one_bad_call_does_not_take_the_good_ones_with_it(bank, graph, hymem_writer, events):
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_writer, establish_relationships=[*ANN_IN_OSLO[RELATIONS], call(RELATIONS, {"x": 1})])
    made = bank(graph)
    made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    assert {event.site: event.dropped for event in events}["mem0.graph.relations"] == 1


def test_skip_and_fallback(bank, graph, hymem_writer, hymem_main):
    graph["llm"]["config"]["writer"]["on_failure"] = "fallback"
    script(hymem_writer, "Lives in Oslo")
    hymem_writer.reply(lambda body: tool(body) is not None, body={}, status=401)
    script_graph(hymem_main)
    made = bank(graph)
    made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    assert sorted(asked(hymem_main)) == sorted(ANN_IN_OSLO)


def test_with_skip_a_dead_graph_write_leaves_the_graph_as_it_is(bank, graph, hymem_writer):
    graph["llm"]["config"]["writer"]["on_failure"] = "skip"
    script(hymem_writer, "Lives in Oslo")
    hymem_writer.reply(lambda body: tool(body) is not None, body={}, status=401)
    made = bank(graph)
    made.add("I live in Oslo.")
    assert made.all() == {"Lives in Oslo"}
    assert relations(made) == set()


def test_a_graph_whose_search_has_no_model_is_refused_when_it_is_made(bank, graph):
    del graph["llm"]["config"]["main_llm"]
    with pytest.raises(SettingsError, match="main_llm"):
        bank(graph)


def test_the_graphs_own_llm_counts(bank, graph, main_llm, hymem_main, hymem_writer):
    """`graph_store.llm` is Mem0's own way to give the graph another LLM: it then stays that one's."""
    del graph["llm"]["config"]["main_llm"]
    graph["graph_store"]["llm"] = main_llm
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_main)
    made = bank(graph)
    made.add("I live in Oslo.")
    assert asked(hymem_writer) == []
    assert sorted(asked(hymem_main)) == sorted(ANN_IN_OSLO)


def test_enable_leaves_the_graph_where_it_is(bank, config, hymem_writer, hymem_main, tmp_path):
    config["graph_store"] = {"provider": "kuzu", "config": {"db": str(tmp_path / "kuzu")}}
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_main)
    with hymem_mem0.enable(base_url=hymem_writer.base_url):
        bank(config).add("I live in Oslo.")
    assert sorted(asked(hymem_main)) == sorted(ANN_IN_OSLO)


@pytest.fixture
def forgetting(bank, graph, hymem_writer):
    """A bank with a memory and its relation, to be deleted; 0.1.118 leaves the graph alone then."""
    script(hymem_writer, "Lives in Oslo")
    script_graph(hymem_writer)
    made = bank(graph)
    if not hasattr(made.memory.graph, "delete"):
        pytest.skip("0.1.118 leaves the graph alone when a memory is deleted")
    (added,) = made.add("I live in Oslo.")
    assert relations(made) == {("ann", "lives_in", "oslo")}
    made.forget = lambda: made._run(made.memory.delete(added["id"]))
    return made


def test_a_deleted_memory_takes_its_relations_along(events, forgetting):
    events.clear()
    forgetting.forget()
    assert relations(forgetting) == set()
    assert [event.site for event in events] == ["mem0.graph.entities", "mem0.graph.forget"]


@pytest.mark.parametrize("said", ["I think: %s (unsure)", "%s"])
def test_no_relation_is_deleted_on_a_guess(forgetting, hymem_writer, said):
    """What `delete()` is told there, it deletes."""
    text = said % json.dumps(
        {"entities": [{"source": "ann", "relationship": "lives_in", "destination": "oslo"}]}
    )
    hymem_writer.reply(lambda body: tool(body) == RELATIONS, text)
    with pytest.raises(HymemError, match=r"mem0\.graph\.forget"):
        forgetting.forget()
    assert relations(forgetting) == {("ann", "lives_in", "oslo")}


def test_what_delete_swallows_of_the_graph_is_raised(forgetting, hymem_writer):
    hymem_writer.reply(lambda body: tool(body) == ENTITIES, body={}, status=401)
    with pytest.raises(HymemError, match=r"mem0\.graph\.entities"):
        forgetting.forget()
    assert forgetting.all() == set()
