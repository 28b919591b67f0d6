"""The order of one write, without a server and on a clock of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymem.contract import FREE_TEXT, MEMORIES, Contract, Parsed, RawReply
from hymem.errors import PromptTooLong, ReplyRejected, WriterUnavailable
from hymem.plan import (
    ATTEMPTS,
    AskMain,
    CountTokens,
    ListModels,
    MainModelFailed,
    Received,
    Send,
    Sleep,
    Tally,
    TransportError,
    WriteCall,
    first_request,
    write_plan,
)
from hymem.settings import WriterSettings, load_settings

GOOD = '{"memories": ["Lives in Oslo"]}'
MESSAGES = ({"role": "user", "content": "I live in Oslo"},)


@dataclass
class After:
    seconds: float
    answer: object


class Play:
    """Drives a plan with answers given beforehand: an answer, or one `After` some seconds (1 if not said)."""

    def __init__(self, *answers, contract=MEMORIES, call=None, count=None, **arguments):
        self.now = 0.0
        self.answers = list(answers)
        self.count = count
        self.steps = []
        self.tally = Tally()
        self.call = call or WriteCall(MESSAGES, contract)
        self.settings = WriterSettings(**arguments)

    def run(self):
        plan = write_plan(self.call, self.settings, self.tally, clock=lambda: self.now, jitter=lambda: 0.0)
        try:
            step = next(plan)
            while True:
                self.steps.append(step)
                answer = self.answer(step)
                thrown = isinstance(answer, (TransportError, MainModelFailed))
                step = plan.throw(answer) if thrown else plan.send(answer)
        except StopIteration as done:
            return done.value

    def answer(self, step):
        if isinstance(step, Sleep):
            self.now += step.seconds
            return None
        if isinstance(step, CountTokens) and self.count is not None:
            return self.count
        answer = self.answers.pop(0)
        seconds, answer = (answer.seconds, answer.answer) if isinstance(answer, After) else (1.0, answer)
        self.now += seconds
        return answer

    @property
    def requests(self):
        return [step.request.body for step in self.steps if isinstance(step, Send)]

    def outcome(self):
        return self.tally.outcome, sorted(self.tally.steps)


def reply(text, finish="stop"):
    return Received(RawReply(text, finish_reason=finish), 10, 5)


def test_one_good_reply():
    play = Play(reply(GOOD))
    assert play.run().text == GOOD
    assert play.outcome() == ("ok", [])
    (body,) = play.requests
    assert body["model"] == "hy-memory"
    assert body["temperature"] == 0.0
    assert body["max_tokens"] == 4096
    assert body["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
    assert "reasoning_effort" not in body
    assert "response_format" not in body
    assert (play.tally.prompt_tokens, play.tally.completion_tokens) == (10, 5)


def test_a_valid_empty_reply_is_one_request():
    play = Play(reply('{"memories": []}'))
    play.run()
    assert play.outcome() == ("empty", [])
    assert len(play.requests) == 1


def test_what_the_framework_asked_for_is_sent_on():
    call = WriteCall(MESSAGES, MEMORIES, max_tokens=17, response_format={"type": "json_object"})
    play = Play(reply(GOOD), call=call)
    play.run()
    (body,) = play.requests
    assert body["response_format"] == {"type": "json_object"}
    assert body["max_tokens"] == 4096


@pytest.mark.parametrize(("arguments", "expected"), [({}, 17), ({"max_tokens": 99}, 99)])
def test_free_text_keeps_the_frameworks_length_unless_hymem_was_told(arguments, expected):
    play = Play(reply("text"), call=WriteCall(MESSAGES, FREE_TEXT, max_tokens=17), **arguments)
    play.run()
    assert play.requests[0]["max_tokens"] == expected


def test_another_effort_or_none():
    play = Play(reply(GOOD), reasoning_effort="high", extra_body={"chat_template_kwargs": {"x": 1}})
    play.run()
    assert play.requests[0]["chat_template_kwargs"] == {"x": 1, "reasoning_effort": "high"}
    play = Play(reply(GOOD), reasoning_effort=None)
    play.run()
    assert "chat_template_kwargs" not in play.requests[0]


def test_recovery_asks_with_the_schema_once():
    play = Play(reply("no json"), reply(GOOD))
    assert play.run().text == GOOD
    assert play.outcome() == ("ok", ["recovered"])
    first, second = play.requests
    assert second["response_format"]["json_schema"]["schema"] == MEMORIES.schema
    assert {**second, "response_format": None} == {**first, "response_format": None}


def test_a_cut_reply_is_given_more_room():
    play = Play(reply(GOOD[:-5], "length"), reply(GOOD))
    play.run()
    assert [body["max_tokens"] for body in play.requests] == [4096, 8192]
    assert play.outcome() == ("ok", ["recovered"])


@pytest.mark.parametrize("second", ['{"memories": []}', '{"memories": ["only"]}'])
def test_a_recovery_that_says_less_does_not_replace_a_cut_reply(second):
    play = Play(reply('{"memories": ["a", "b", "c", "d', "length"), reply(second))
    assert play.run().value == ["a", "b", "c"]
    assert play.tally.outcome == "partial"


def test_cut_twice_the_fuller_reply_is_salvaged():
    short = '{"memories": ["a", "b'
    long = '{"memories": ["a", "b", "c", "d'
    for answers in ((short, long), (long, short)):
        play = Play(*(reply(text, "length") for text in answers))
        assert play.run().value == ["a", "b", "c"]
        assert play.tally.outcome == "partial"
        assert (play.tally.kept, play.tally.dropped) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "contract", "text"),
    [
        ({"structured_output": "never"}, MEMORIES, "no json"),
        ({"structured_output": "always"}, MEMORIES, "no json"),
        ({}, FREE_TEXT, "  "),
    ],
)
def test_the_same_request_is_never_sent_twice(arguments, contract, text):
    play = Play(reply(text), contract=contract, **arguments)
    with pytest.raises(ReplyRejected):
        play.run()
    assert len(play.requests) == 1
    assert play.tally.outcome == "failed"


def test_a_failing_recovery_does_not_lose_what_the_first_reply_gave():
    play = Play(reply("{'memories': ['a',]}"), TransportError("timeout"))
    assert play.run().value == ["a"]
    assert play.outcome() == ("ok", ["normalised", "repaired"])


def test_no_recovery_is_begun_when_the_time_is_up():
    play = Play(After(120.0, reply("no json")))
    with pytest.raises(ReplyRejected):
        play.run()
    assert len(play.requests) == 1


@pytest.mark.parametrize(
    "failure",
    [TransportError("connect"), TransportError("broken")]
    + [TransportError("status", status=status) for status in (408, 429, 502, 503, 504)],
)
def test_what_another_try_may_cure_is_tried_again(failure):
    play = Play(failure, failure, reply(GOOD))
    play.run()
    assert play.outcome()[0] == "ok"
    assert [step.seconds for step in play.steps if isinstance(step, Sleep)] == [0.5, 1.0]


@pytest.mark.parametrize(
    "failure",
    [TransportError(kind) for kind in ("timeout", "too_large", "resting", "not_a_reply")]
    + [TransportError("status", status=status) for status in (400, 401, 403, 404, 409, 500)],
)
def test_what_another_try_cannot_cure_is_told_at_once(failure):
    play = Play(failure, *[TransportError("status", status=404)] * (failure.status == 404))
    with pytest.raises(WriterUnavailable) as raised:
        play.run()
    assert len(play.requests) == 1
    assert raised.value.status == failure.status


def test_a_wrong_model_name_is_told_with_what_the_server_has():
    play = Play(TransportError("status", status=404), ("hy-memory", "other"))
    with pytest.raises(WriterUnavailable, match="it serves 'hy-memory', 'other'; set `model`"):
        play.run()
    assert isinstance(play.steps[-1], ListModels)


def test_tries_are_bounded():
    play = Play(*[TransportError("connect")] * ATTEMPTS)
    with pytest.raises(WriterUnavailable):
        play.run()
    assert len(play.requests) == ATTEMPTS


def test_retry_after_is_heeded_within_the_time():
    play = Play(TransportError("status", status=429, retry_after=30.0), reply(GOOD))
    play.run()
    assert [step.seconds for step in play.steps if isinstance(step, Sleep)] == [30.0]
    play = Play(TransportError("status", status=429, retry_after=300.0))
    with pytest.raises(WriterUnavailable):
        play.run()
    assert not any(isinstance(step, Sleep) for step in play.steps)


@pytest.mark.parametrize(
    "answers",
    [
        [After(50.0, TransportError("connect"))] * 3,
        [After(70.0, reply("no json")), After(70.0, TransportError("timeout"))],
        [
            After(50.0, TransportError("status", status=503)),
            After(50.0, reply("no json")),
            After(50.0, reply("no json")),
        ],
        [After(119.7, TransportError("connect"))],
    ],
)
def test_one_budget_covers_attempts_backoff_and_recovery(answers):
    play = Play(*answers)
    with pytest.raises((WriterUnavailable, ReplyRejected)):
        play.run()
    deadlines = {step.deadline for step in play.steps if isinstance(step, Send)}
    assert deadlines == {120.0}
    begun = [step for step in play.steps if isinstance(step, Send)]
    assert len(begun) <= len(answers)


def too_many(**kwargs):
    return TransportError("status", status=400, **kwargs)


def test_max_tokens_over_the_limit_is_corrected_once():
    over = too_many(param="max_tokens", max_model_len=4000)
    play = Play(over, (1000, 4000), reply(GOOD))
    play.run()
    assert [body["max_tokens"] for body in play.requests] == [4096, 3000]
    assert play.outcome() == ("ok", [])
    with pytest.raises(WriterUnavailable):
        Play(over, (1000, 4000), over).run()


def test_a_long_prompt_is_given_what_is_left():
    over = too_many(param="input_tokens", max_model_len=8000)
    play = Play(over, (6000, 8000), reply(GOOD))
    play.run()
    assert isinstance(play.steps[1], CountTokens)
    assert [body["max_tokens"] for body in play.requests] == [4096, 2000]


def test_each_correction_is_made_once():
    over = too_many(param="input_tokens", max_model_len=8000)
    play = Play(*[over] * 9, count=(500, 8000))
    with pytest.raises(WriterUnavailable):
        play.run()
    assert len(play.requests) == 2


def test_no_correction_is_begun_when_the_time_is_up():
    play = Play(After(120.0, too_many(param="max_tokens", max_model_len=4000)), count=(10, 4000))
    with pytest.raises(WriterUnavailable) as raised:
        play.run()
    assert raised.value.kind == "timeout"
    assert len(play.requests) == 1


def test_a_prompt_that_leaves_no_room_is_told_with_its_numbers():
    over = too_many(param="input_tokens", max_model_len=8000)
    with pytest.raises(PromptTooLong) as raised:
        Play(over, (7900, 8000)).run()
    assert (raised.value.prompt_tokens, raised.value.max_model_len) == (7900, 8000)
    with pytest.raises(PromptTooLong):
        Play(too_many(param="input_text")).run()


def test_without_a_tokenize_route_a_quarter_is_tried():
    over = too_many(param="input_tokens")
    play = Play(over, TransportError("status", status=404), reply(GOOD))
    play.run()
    assert [body["max_tokens"] for body in play.requests] == [4096, 1024]


def test_skip_gives_the_reply_that_changes_nothing():
    play = Play(TransportError("timeout"), on_failure="skip")
    assert json.loads(play.run().text) == {"memories": []}
    assert play.tally.outcome == "failed"
    assert isinstance(play.tally.error, WriterUnavailable)


def test_skip_raises_where_there_is_no_such_reply():
    with pytest.raises(WriterUnavailable):
        Play(TransportError("timeout"), contract=FREE_TEXT, on_failure="skip").run()


def test_fallback_reads_the_main_models_reply_through_the_same_contract():
    play = Play(TransportError("timeout"), RawReply('Sure: {"facts": ["a"]}'), on_failure="fallback")
    assert play.run().value == ["a"]
    assert isinstance(play.steps[-1], AskMain)
    assert play.outcome() == ("ok", ["fell_back", "normalised"])
    for answer in (RawReply("rubbish"), MainModelFailed("RateLimitError")):
        play = Play(TransportError("timeout"), answer, on_failure="fallback")
        with pytest.raises(WriterUnavailable):
            play.run()
        assert play.tally.outcome == "failed"


def test_messages_that_cannot_be_encoded_are_cleaned_once():
    call = WriteCall(({"role": "user", "content": "I live in \ud83d Oslo"},), MEMORIES)
    play = Play(TransportError("unencodable"), reply(GOOD), call=call)
    play.run()
    assert play.requests[1]["messages"] == [{"role": "user", "content": "I live in  Oslo"}]
    assert play.outcome() == ("ok", ["reshaped"])
    assert play.tally.requests == 1
    with pytest.raises(WriterUnavailable):
        Play(TransportError("unencodable"), TransportError("unencodable")).run()


def test_the_recovery_of_such_messages_is_cleaned_too():
    call = WriteCall(({"role": "user", "content": "Oslo \ud83d"},), MEMORIES, steps=frozenset({"reshaped"}))
    unencodable = TransportError("unencodable")
    play = Play(unencodable, reply("no json"), unencodable, reply(GOOD), call=call)
    play.run()
    assert play.outcome() == ("ok", ["recovered", "reshaped"])
    assert play.tally.requests == 2


@pytest.mark.parametrize("kind", ["resting", "busy"])
def test_what_was_never_sent_is_not_counted(kind):
    play = Play(TransportError(kind))
    with pytest.raises(WriterUnavailable):
        play.run()
    assert play.tally.requests == 0


def test_a_fallback_that_is_left_in_the_middle_counts_as_cancelled():
    tally = Tally()
    plan = write_plan(WriteCall(MESSAGES, MEMORIES), WriterSettings(on_failure="fallback"), tally)
    next(plan)
    assert isinstance(plan.throw(TransportError("timeout")), AskMain)
    plan.close()
    assert tally.outcome == "cancelled"


def test_a_plan_that_is_left_in_the_middle_counts_as_cancelled():
    tally = Tally()
    plan = write_plan(WriteCall(MESSAGES, MEMORIES), WriterSettings(), tally)
    next(plan)
    plan.close()
    assert tally.outcome == "cancelled"
    assert tally.requests == 1


def test_errors_carry_no_text_of_the_conversation_or_the_reply():
    secret = "the-secret-of-the-conversation"
    call = WriteCall(({"role": "user", "content": secret},), MEMORIES)
    for answers in ([reply(secret), reply(secret)], [TransportError("status", status=500)]):
        with pytest.raises((ReplyRejected, WriterUnavailable)) as raised:
            Play(*answers, call=call).run()
        error: BaseException | None = raised.value
        while error is not None:
            assert secret not in str(error)
            error = error.__cause__ or error.__context__


answers = st.one_of(
    st.builds(
        reply, st.text(max_size=60) | st.just(GOOD) | st.just(GOOD[:-4]), st.sampled_from(["stop", "length"])
    ),
    st.sampled_from(["connect", "broken", "timeout", "not_a_reply"]).map(TransportError),
    st.builds(
        TransportError,
        st.just("status"),
        status=st.sampled_from([400, 401, 429, 500, 503]),
        param=st.sampled_from([None, "max_tokens", "input_tokens", "input_text"]),
        max_model_len=st.sampled_from([None, 300, 8000]),
    ),
)


@given(
    st.lists(answers, min_size=40, max_size=40),
    st.sampled_from(["never", "on_violation", "always"]),
    st.sampled_from(["raise", "skip"]),
    st.sampled_from([MEMORIES, FREE_TEXT]),
)
@settings(max_examples=200, deadline=None)
def test_any_run_of_answers_ends_in_one_outcome_and_bounded_requests(given, output, on_failure, contract):
    play = Play(*given, contract=contract, count=(500, 8000), structured_output=output, on_failure=on_failure)
    try:
        play.run()
    except (WriterUnavailable, PromptTooLong, ReplyRejected):
        assert play.tally.outcome == "failed"
    else:
        assert play.tally.outcome in ("ok", "empty", "partial", "failed")
    assert len(play.requests) <= 2 * 4 * ATTEMPTS


# -- calls of functions --------------------------------------------------------------------------

NOTE = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}


def calls(contract_name="note", **more):
    return Contract(
        name="notes",
        schema=None,
        keys=("text",),
        check=lambda value, facts: Parsed(value, kept=len(value)),
        render=lambda value: "",
        unchanged=lambda facts: "",
        tools=(contract_name,),
        **more,
    )


def called(*made, finish="tool_calls"):
    return Received(RawReply("", tuple({"function": each} for each in made), finish))


def asking(contract):
    return WriteCall(MESSAGES, contract, tools=[NOTE], tool_choice="auto", max_tokens=17)


GOOD_CALL = {"name": "note", "arguments": '{"text": "Lives in Oslo"}'}
MADE = [{"name": "note", "arguments": {"text": "Lives in Oslo"}}]


def test_calls_are_handed_on_as_a_value():
    play = Play(called(GOOD_CALL), call=asking(calls()))
    assert play.run().value == MADE
    assert play.outcome() == ("ok", [])
    (body,) = play.requests
    assert body["tools"] == [NOTE]
    assert body["tool_choice"] == "auto"
    assert body["max_tokens"] == 4096  # arguments are JSON, whose length is not the framework's to say


@pytest.mark.parametrize(
    "first",
    [
        called(),
        called({"name": "other", "arguments": "{}"}),
        called({"name": "note", "arguments": '"'}),
        called(None),
        Received(RawReply("She lives in Oslo.")),
        called(GOOD_CALL, finish="length"),
    ],
)
def test_what_is_no_call_is_asked_for_again_by_name(first):
    play = Play(first, called(GOOD_CALL), call=asking(calls()))
    assert play.run().value == MADE
    assert play.outcome() == ("ok", ["recovered"])
    assert play.requests[1]["tool_choice"] == {"type": "function", "function": {"name": "note"}}
    assert play.requests[1]["tools"][0]["function"]["strict"] is True


def test_always_names_the_function_from_the_first():
    play = Play(called(GOOD_CALL), call=asking(calls()), structured_output="always")
    play.run()
    assert play.requests[0]["tool_choice"]["function"]["name"] == "note"
    play = Play(called(), call=asking(calls()), structured_output="never")
    with pytest.raises(ReplyRejected):
        play.run()
    assert len(play.requests) == 1


def test_a_call_in_the_text_is_taken_where_there_has_to_be_one():
    text = Received(RawReply('Sure: {"text": "Lives in Oslo"}'))
    play = Play(text, call=asking(calls()))
    assert play.run().value == MADE
    assert play.outcome() == ("ok", ["normalised"])
    may = calls(may_call_nothing=True)
    for said, outcome in ((text, "partial"), (Received(RawReply("Nothing to note.")), "empty")):
        play = Play(said, call=asking(may))  # not executed; but what looks like a call is counted as lost
        assert play.run().value == []
        assert play.outcome() == (outcome, [])


def test_unusable_calls_beside_good_ones_are_counted():
    play = Play(called(GOOD_CALL, {"name": "other", "arguments": "{}"}), call=asking(calls()))
    assert play.run().value == MADE
    assert play.outcome() == ("partial", [])
    assert play.tally.dropped == 1


def test_nothing_is_overwritten_on_broken_arguments():
    contract = calls(may_call_nothing=True)
    contract = replace(contract, check=lambda value, facts: Parsed(value, kept=1, overwrites=True))
    play = Play(called({"name": "note", "arguments": "{'text': 'Lives in Oslo'}"}), call=asking(contract))
    with pytest.raises(ReplyRejected):
        play.run()
    assert Play(called(GOOD_CALL), call=asking(contract)).run().value == MADE


# -- messages that templates refuse --------------------------------------------------------------


def test_messages_of_other_kinds_are_reshaped_and_that_is_told():
    messages = ({"role": "developer", "content": "Be brief"}, *MESSAGES, {"role": "tool", "content": "4"})
    play = Play(reply(GOOD), call=WriteCall(messages, MEMORIES))
    play.run()
    assert play.outcome() == ("ok", ["reshaped"])
    roles = [message["role"] for message in play.requests[0]["messages"]]
    assert roles == ["system", "user", "user"]
    play = Play(called(GOOD_CALL), call=WriteCall(messages, calls(), tools=[NOTE]))
    play.run()
    assert play.requests[0]["messages"] is messages  # native calls: the template knows them


# -- what a call asks for by itself --------------------------------------------------------------


def test_fields_of_a_call_are_added_and_settings_stand():
    settings = WriterSettings(extra_body={"top_k": 1, "chat_template_kwargs": {"a": 1}})
    fields = {
        "top_k": 5,
        "stop": ["x"],
        "temperature": 1.0,
        "model": "other",
        "chat_template_kwargs": {"b": 2},
    }
    body = first_request(WriteCall([{"role": "user", "content": "x"}], fields=fields), settings).body
    assert (body["top_k"], body["stop"], body["temperature"], body["model"]) == (5, ["x"], 0.0, "hy-memory")
    assert body["chat_template_kwargs"] == {"a": 1, "b": 2, "reasoning_effort": "no_think"}


@pytest.mark.parametrize(("asked", "sent"), [(False, 100), (True, 9)])
def test_max_tokens_that_the_user_asks_of_a_call_holds(asked, sent):
    call = WriteCall([{"role": "user", "content": "x"}], max_tokens=9, max_tokens_asked=asked)
    assert first_request(call, load_settings({"max_tokens": 100})).body["max_tokens"] == sent
