"""One way to be wrong for each rule of the suite: name → the test that has to fail, and the wrong.

`TOYNOTES_WRONG` names the one that is in force, in this process and in those it starts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from types import FunctionType

RULES = {}
_DONE = []


def wrong(test):
    """The decorated function breaks what `test` is about."""

    def keep(function):
        RULES[function.__name__] = (test, function)
        return function

    return keep


def is_wrong(*names):
    return os.environ.get("TOYNOTES_WRONG") in names


def be_wrong():
    """Apply what `TOYNOTES_WRONG` names, once."""
    name = os.environ.get("TOYNOTES_WRONG")
    if name and not _DONE:
        _DONE.append(name)
        RULES[name][1]()


def llm():
    from hymem_toynotes.models import HyMemoryLLM

    return HyMemoryLLM


@wrong("test_only_writes_go_to_the_writer")
def reads_go_to_the_writer():
    llm().ask = lambda self, messages: self.writer.write(self.call(messages)).text


@wrong("test_the_request_is_what_the_model_was_trained_for")
def thinking_is_left_on():
    _settings_are({"reasoning_effort": None})


@wrong("test_the_request_is_what_the_model_was_trained_for")
def the_reply_is_left_to_chance():
    _settings_are({"temperature": 0.7})


def _settings_are(forced):
    from hymem import settings, writer

    real = settings.load_settings

    def load(arguments=None, **more):
        return real({**(arguments or {}), **forced}, **more)

    writer.load_settings = load


@wrong("test_an_environment_full_of_other_settings")
def the_sdk_reads_the_environment():
    import openai

    def complete(self, messages):
        settings = self.writer.settings
        client = openai.OpenAI(base_url=settings.base_url, api_key=settings.api_key.get_secret_value())
        body = {"reasoning_effort": "no_think"}
        made = client.chat.completions.create(
            model=settings.model, messages=messages, extra_body={"chat_template_kwargs": body}
        )
        return made.choices[0].message.content

    llm().complete = complete


@wrong("test_two_writers_with_different_settings_at_once")
def the_last_writer_serves_all():
    llm().writer = _Last()


class _Last:
    def __get__(self, instance, owner=None):
        return self.writer

    def __set__(self, instance, writer):
        self.writer = writer


@wrong("test_whichever_is_imported_first")
def comes_too_late():
    import hymem_toynotes

    first = next(name for name in sys.modules if name in ("toynotes", "hymem_toynotes"))
    if first == "toynotes":
        hymem_toynotes.register = contextlib.nullcontext


@wrong("test_twice_is_once")
def twice_is_twice():
    from hymem_toynotes.seams import INTEGRATION

    real = INTEGRATION.register

    def register():
        INTEGRATION._registered = None
        return real()

    INTEGRATION.register = register


@wrong("test_enabling_routes_objects_that_are_there_and_lets_go_of_them")
def enabling_is_registering():
    from hymem_toynotes.seams import INTEGRATION

    INTEGRATION._routed._resolve = lambda switch: []


@wrong("test_attaching_routes_one_object")
def attaching_routes_them_all():
    import hymem_toynotes

    hymem_toynotes.attach = lambda notebook, **settings: hymem_toynotes.enable(**settings)


@wrong("test_undone_by_identity")
def a_copy_is_put_back():
    def put_back(self):
        for place, original, _ in reversed(self._applied):
            place.set(_copy(original))
        self._applied.clear()
        return []

    _patch_set()._put_back = put_back


@wrong("test_a_later_wrapper_is_left_where_it_is")
def later_wrappers_are_taken_off():
    def put_back(self):
        for place, original, _ in reversed(self._applied):
            place.set(original)
        self._applied.clear()
        return []

    _patch_set()._put_back = put_back


@wrong("test_a_later_wrapper_is_left_where_it_is")
def what_is_left_still_routes():
    _patch_set().undo = _patch_set()._put_back


@wrong("test_a_reloaded_module_is_seen_to_be_unpatched")
def the_status_is_remembered():
    _patch_set().status = lambda self: {place.name: True for place, _, _ in self._applied}


@wrong("test_a_missing_seam_changes_nothing")
def seams_are_taken_one_by_one():
    from hymem.errors import SeamMissing
    from hymem.patching import MISSING

    def apply(self):
        for patch in self._resolve(self._switch):
            if patch.needed and patch.place.get() is MISSING:
                raise SeamMissing("nothing was changed", missing=(patch.place.name,))
            patch.place.set(patch.make(patch.place.get()))

    _patch_set().apply = apply


def _patch_set():
    from hymem.patching import PatchSet

    return PatchSet


def _copy(original):
    if not isinstance(original, FunctionType):
        return original

    @functools.wraps(original)
    def copy(*args, **kwargs):
        return original(*args, **kwargs)

    return copy


@wrong("test_versions")
def any_version_will_do():
    from packaging.version import Version

    from hymem.integration import Framework

    Framework.version = lambda self: Version("1.5")


@wrong("test_an_older_core_is_refused")
def any_core_will_do():
    from hymem.integration import Integration

    Integration.check_core = lambda self: None


@wrong("test_the_integration_removed_while_configured")
def an_unknown_name_is_the_default():
    import toynotes

    real = toynotes.make_llm

    def make(config):
        return real(config) if config["provider"] in toynotes.PROVIDERS else None

    toynotes.make_llm = make


@wrong("test_the_configuration_alone_is_enough")
def the_name_is_known_to_nobody():
    import hymem_toynotes

    hymem_toynotes.register = lambda: None


@wrong("test_the_environment_alone_is_enough")
def enabling_waits_for_a_line_of_code():
    import hymem_toynotes

    hymem_toynotes.enable = lambda: None


@wrong("test_a_program_that_is_run")
def running_routes_nothing():
    from hymem_toynotes.seams import INTEGRATION

    INTEGRATION._routed._resolve = lambda switch: []


@wrong("test_a_renamed_seam")
def a_seam_that_is_not_there_is_passed_over():
    real = _patch_set().apply

    def apply(self):
        resolve = self._resolve
        self._resolve = lambda switch: [each for each in resolve(switch) if not each.needed]
        real(self)

    _patch_set().apply = apply


@wrong("test_the_doctor_shows_the_route")
def a_question_is_a_write():
    import toynotes

    from hymem import Writer

    def complete(self, messages):
        return Writer(framework="toynotes").write(llm().call(None, messages)).text

    toynotes.PlainLLM.complete = complete


@wrong("test_the_doctor_shows_the_route")
def there_is_no_probe():
    from hymem_toynotes.seams import INTEGRATION

    INTEGRATION.probe = None


@wrong("test_many_threads")
def the_call_is_kept_on_the_object():
    real = llm().complete

    def complete(self, messages):
        self.messages = messages
        time.sleep(0.01)
        return real(self, self.messages)

    llm().complete = complete


@wrong("test_many_tasks")
def the_async_call_is_kept_on_the_object():
    real = llm().acomplete

    async def acomplete(self, messages):
        import asyncio

        self.messages = messages
        await asyncio.sleep(0.01)
        return await real(self, self.messages)

    llm().acomplete = acomplete


@wrong("test_three_loops_in_a_row")
def one_client_serves_all_loops():
    from hymem import transport

    made = []

    async def loop_client(endpoint):
        if not made:
            made.append(transport._open(endpoint, asynchronous=True))
        return made[0]

    transport._loop_client = loop_client


@wrong("test_forked_children")
def children_share_connections():
    from hymem import transport

    transport.on_fork = lambda forget: None


@wrong("test_what_a_write_began_is_no_write_afterwards")
def a_scope_never_closes():
    from hymem import scope

    scope.current = scope._current.get


@wrong("test_a_cancelled_write_is_counted_as_one")
def a_cancelled_write_is_forgotten():
    from hymem.writer import Writer

    real = Writer._finish

    def finish(self, plan, tally, call, started):
        return None if tally.outcome == "cancelled" else real(self, plan, tally, call, started)

    Writer._finish = finish


def _swallow():
    from hymem import HymemError

    real = llm().complete, llm().acomplete
    nothing = json.dumps({"notes": []})

    def complete(self, messages):
        try:
            return real[0](self, messages)
        except HymemError:
            return nothing

    async def acomplete(self, messages):
        try:
            return await real[1](self, messages)
        except HymemError:
            return nothing

    llm().complete, llm().acomplete = complete, acomplete


@wrong("test_a_failed_write_is_an_error_of_the_caller")
def failures_are_swallowed():
    from hymem import integration

    integration._raise_swallowed = lambda opened: None
    _swallow()


@wrong("test_a_failed_write_is_an_error_of_the_caller")
def the_main_model_is_asked_instead():
    _settings_are({"on_failure": "fallback"})


@wrong("test_a_failed_write_is_an_error_of_the_caller")
def errors_quote_the_conversation():
    from hymem import plan

    real = plan._unavailable

    def unavailable(asking, error, offered=()):
        made = real(asking, error, offered)
        made.args = (f"{made}: {asking.call.messages}",)
        return made

    plan._unavailable = unavailable


@wrong("test_skip_leaves_things_as_they_are")
def skip_raises():
    _settings_are({"on_failure": "raise"})


@wrong("test_fallback_has_the_main_model_write")
def nothing_to_fall_back_on():
    llm().fallback = llm().afallback = lambda self, messages: None


@wrong("test_what_is_not_a_write_needs_a_main_model")
def the_writer_answers_where_there_is_nobody_else():
    real = llm().ask

    def ask(self, messages):
        return self.writer.write(self.call(messages)).text if self.main is None else real(self, messages)

    llm().ask = ask


@wrong("test_importing_the_integration_does_nothing")
def importing_does_work():
    """The suite is run on another module then: hymem_toynotes_eager."""


@wrong("test_the_files_are_those_of_every_integration")
def it_is_all_in_one_file():
    """As before."""


@wrong("test_the_switches_are_those_of_every_integration")
def there_is_no_way_back():
    import hymem_toynotes

    del hymem_toynotes.disable


@wrong("test_without_the_framework_it_says_what_to_install")
def it_does_not_notice_that_the_framework_is_missing():
    any_version_will_do()


@wrong("test_every_write_site_has_a_contract")
def a_write_has_no_contract():
    from dataclasses import replace

    import hymem_toynotes

    hymem_toynotes.CALL_SITES = tuple(replace(site, contract=None) for site in hymem_toynotes.CALL_SITES)
