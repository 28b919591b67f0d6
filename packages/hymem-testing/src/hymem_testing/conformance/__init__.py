"""What every integration is held to: the same rules, inherited.

    from hymem_testing.conformance import Adapter, Conformance

    class TestMyFramework(Conformance):
        adapter = MyAdapter

Each test is one rule; its docstring says which. All run against the real framework, with its
embedded stores, over real sockets. Rules about imports, forks and reloads run in processes of
their own. What differs between frameworks is in the `Adapter`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import importlib.metadata
import itertools
import logging
import os
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import pytest

from hymem_testing.proxy import Proxy

from .adapter import USERS_KEY, Adapter, Configuration, Server, finish
from .failures import FAILURES, NOWHERE, SAID, Failure, cause_of
from .stage import WRITERS_KEY, Stage, renamed
from .structure import Structure

__all__ = [
    "FAILURES", "USERS_KEY", "Adapter", "Configuration", "Conformance", "Failure", "Server", "Stage",
    "Structure", "cause_of", "finish",
]  # fmt: skip

OSLO, CAT = "Lives in Oslo", "Has a cat"
MANY = 64
"""Threads, and tasks, that write at once."""


class Conformance(Structure):
    """Inherit, and name the `adapter`."""

    adapter: ClassVar[type[Adapter]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "adapter" in vars(cls):
            cls.integration = cls.adapter.integration

    @property
    def _module(self) -> ModuleType:
        return self.adapter(Path()).module

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "way" in metafunc.fixturenames:
            metafunc.parametrize("way", type(self).adapter.ways)

    # -- what the tests are given ----------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def _clean(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        import hymem

        monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
        monkeypatch.setattr("hymem.events._times_logged", Counter())
        yield
        self.adapter(tmp_path).module.disable()
        hymem.close()

    @pytest.fixture
    def stage(self, tmp_path: Path, hymem_writer: Proxy, hymem_main: Proxy) -> Iterator[Stage]:
        import hymem

        stage = Stage(self.adapter, tmp_path, hymem_writer, hymem_main)
        stop = hymem.observe(stage.events.append)
        yield stage
        stop()

    # -- who is asked for what -------------------------------------------------------------------

    @pytest.mark.hymem_short
    def test_only_writes_go_to_the_writer(self, stage: Stage, way: str) -> None:
        """After the swap writes go to the writer, all else to the main model, each with its own key."""
        stage.framework.script(stage.writer, [OSLO, CAT])
        stage.main.reply(None, "an answer")
        memory = stage.opened(way)
        finish(stage.framework.write(memory, SAID))
        assert finish(stage.framework.memories(memory)) == {OSLO, CAT}
        assert stage.main.chats == []
        assert [event.site for event in stage.events] == stage.sites
        writes = {site.id for site in stage.framework.module.CALL_SITES if site.side == "write"}
        assert set(stage.sites) <= writes
        assert {event.outcome for event in stage.events} == {"ok"}
        assert sum(event.requests for event in stage.events) == len(stage.writer.chats)
        assert finish(stage.framework.read(memory, "a question")) == "an answer"
        assert len(stage.writer.chats) == len(stage.sites)
        (asked,) = stage.main.chats
        assert "a question" in asked.text
        assert asked.json["model"] == stage.main.model
        stage.check_keys()

    def test_the_request_is_what_the_model_was_trained_for(self, stage: Stage, way: str) -> None:
        """Temperature 0, a bound on tokens, no_think in the template's arguments and nowhere else."""
        stage.framework.script(stage.writer, [OSLO])
        memory = stage.opened(way)
        finish(stage.framework.write(memory, SAID))
        assert len(stage.writer.chats) == len(stage.sites)
        for sent in stage.writer.chats:
            body = sent.json
            assert body["model"] == "hy-memory"
            assert body["temperature"] == 0.0
            assert body["max_tokens"] > 0
            assert body["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
            allowed = {"model", "messages", "temperature", "max_tokens", "response_format"}
            assert set(body) <= allowed | {"chat_template_kwargs"}
        assert SAID in stage.writer.chats[0].text

    def test_an_environment_full_of_other_settings(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        """`OPENAI_*` and a dead `HTTP_PROXY` change nothing for a writer on this machine."""
        for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
            monkeypatch.setenv(name, USERS_KEY)
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {USERS_KEY}")
        monkeypatch.setenv("OPENAI_BASE_URL", NOWHERE)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, NOWHERE)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, f"127.0.0.1:{stage.main.url.rpartition(':')[2]}")
        stage.framework.script(stage.writer, [OSLO])
        memory = stage.opened(way)
        finish(stage.framework.write(memory, SAID))
        assert finish(stage.framework.memories(memory)) == {OSLO}
        stage.check_keys()

    def test_two_writers_with_different_settings_at_once(self, stage: Stage, way: str) -> None:
        """Two objects of one process share neither settings nor keys."""
        one, two = stage.at("one"), stage.at("two")
        one.module.register()
        one.script(stage.writer, [OSLO])
        tenants = [
            (each, each.open(each.after(stage.main, {**stage.settings, "api_key": key, "model": model}), way))
            for each, key, model in ((one, "key-one", "model-one"), (two, "key-two", "model-two"))
        ]
        for _ in range(2):
            for each, memory in tenants:
                finish(each.write(memory, SAID))
        sent = {(each.headers["authorization"], each.json["model"]) for each in stage.writer.chats}
        assert sent == {("Bearer key-one", "model-one"), ("Bearer key-two", "model-two")}
        assert {event.model for event in stage.events} == {"model-one", "model-two"}
        for each, memory in tenants:
            assert finish(each.memories(memory)) == {OSLO}

    # -- switching on and off --------------------------------------------------------------------

    @pytest.mark.parametrize("first", ["framework", "integration"])
    def test_whichever_is_imported_first(self, stage: Stage, first: str) -> None:
        """Registering and enabling work before the framework's import, and after it."""
        one, two = stage.at("one"), stage.at("two")
        one.script(stage.writer, [OSLO])
        order = [one.framework, one.integration]
        found, _ = stage.run(
            "imported",
            order=order if first == "framework" else order[::-1],
            after=one.after(stage.main, stage.settings),
            before=two.before(stage.main),
            settings=stage.settings,
        )
        assert found == [[OSLO], [OSLO]]
        assert len(stage.writer.chats) == 2 * len(one.sites)
        assert stage.main.chats == []

    def test_twice_is_once(self, stage: Stage) -> None:
        """Switched on again it is the same handle; with other settings it is an error, or replaced."""
        from hymem import SettingsError

        module = stage.framework.module
        assert module.register() is module.register()
        handle = module.enable(**stage.settings)
        assert module.enable(**stage.settings) is handle
        with pytest.raises(SettingsError, match="replace=True"):
            module.enable(**{**stage.settings, "model": "another"})
        assert handle.active
        other = module.enable(**{**stage.settings, "model": "another"}, replace=True)
        assert not handle.active
        stage.framework.script(stage.writer, [OSLO])
        memory = stage.opened_before(stage.framework.ways[0])
        finish(stage.framework.write(memory, SAID))
        assert [sent.json["model"] for sent in stage.writer.chats] == ["another"] * len(stage.sites)
        assert other.stats().writes == len(stage.sites)

    @pytest.mark.hymem_short
    def test_enabling_routes_objects_that_are_there_and_lets_go_of_them(self, stage: Stage, way: str) -> None:
        """Objects made before are routed while it is on, and only their writes."""
        memory = stage.opened_before(way)
        stage.framework.script(stage.writer, [OSLO])
        with stage.framework.module.enable(**stage.settings) as handle:
            assert all(handle.status().values())
            finish(stage.framework.write(memory, SAID))
            assert len(stage.writer.chats) == handle.stats().writes == len(stage.sites)
            stage.main.reply(None, "an answer")
            assert finish(stage.framework.read(memory, "a question")) == "an answer"
            assert len(stage.main.chats) == 1
            stage.check_keys()
        stage.framework.script(stage.main, [CAT])
        finish(stage.framework.write(memory, "I have a cat."))
        assert len(stage.writer.chats) == len(stage.sites)
        assert len(stage.main.chats) == 1 + len(stage.sites)
        assert finish(stage.framework.memories(memory)) == {OSLO, CAT}

    def test_attaching_routes_one_object(self, stage: Stage, way: str) -> None:
        """One object's writes go to a writer of its own, another's stay."""
        from hymem import SettingsError

        one, two = stage.at("one"), stage.at("two")
        attached, other = (each.open(each.before(stage.main), way) for each in (one, two))
        one.script(stage.writer, [OSLO])
        one.script(stage.main, [CAT])
        handle = one.module.attach(attached, **stage.settings)
        with pytest.raises(SettingsError, match="already"):
            one.module.attach(attached, **stage.settings)
        finish(one.write(attached, SAID))
        finish(two.write(other, "I have a cat."))
        assert finish(one.memories(attached)) == {OSLO}
        assert finish(two.memories(other)) == {CAT}
        assert handle.stats().writes == len(one.sites)
        assert handle.disable() == []
        finish(one.write(attached, "I have a cat."))
        assert len(stage.writer.chats) == len(one.sites)
        with pytest.raises(TypeError):
            one.module.attach(object())

    @pytest.mark.hymem_short
    @pytest.mark.parametrize("switch", ["register", "enable"])
    def test_undone_by_identity(self, stage: Stage, switch: str) -> None:
        """Every place that was changed holds, after disabling, the very object it held before."""
        places = [patch.place for patch in stage.framework.switches.patches()]
        assert places, "the integration changes nothing"
        before = [place.get() for place in places]
        handle = getattr(stage.framework.module, switch)()
        assert any(place.get() is not old for place, old in zip(places, before, strict=True))
        assert handle.disable() == []
        changed = [place.name for place, old in zip(places, before, strict=True) if place.get() is not old]
        assert changed == []
        assert handle.disable() == []
        assert not handle.active

    def test_a_later_wrapper_is_left_where_it_is(self, stage: Stage) -> None:
        """What somebody has put over ours since stays; ours below it does nothing any more."""
        way, two = stage.framework.ways[0], stage.at("two")
        found = stage.framework.switches.patches()
        patches = [patch for patch in found if isinstance(patch.place.get(), FunctionType)]
        assert patches, "no function is wrapped"
        originals = [patch.place.get() for patch in patches]
        handles = [stage.framework.module.enable(**stage.settings), stage.framework.module.register()]
        swapped = stage.opened(way)
        wrappers = [_wrapped(patch.place.get()) for patch in patches]
        for patch, wrapper in zip(patches, wrappers, strict=True):
            patch.place.set(wrapper)
        try:
            left = {each.name for handle in handles for each in handle.disable()}
            assert left == {patch.place.name for patch in patches}
            assert all(patch.place.get() is each for patch, each in zip(patches, wrappers, strict=True))
            stage.framework.script(stage.main, [OSLO])
            finish(two.write(two.open(two.before(stage.main), way), SAID))
            written = 1
            # Where the user's own model object is the writer's, it stays so.
            if not (stage.framework.has_own_main or stage.framework.is_handed_in):
                finish(stage.framework.write(swapped, SAID))
                written = 2
            assert stage.writer.requests == []
            assert len(stage.main.chats) == written * len(stage.sites)
        finally:
            for patch, original in zip(patches, originals, strict=True):
                patch.place.set(original)

    def test_a_reloaded_module_is_seen_to_be_unpatched(self, stage: Stage) -> None:
        """`status()` compares; after a reload it says so, and enabling anew routes again."""
        stage.framework.script(stage.writer, [OSLO])
        found, _ = stage.run("reloaded", configuration=stage.before(), settings=stage.settings)
        assert found["lost"]
        assert found["memories"] == [OSLO]
        assert len(stage.writer.chats) == len(stage.sites)

    @pytest.mark.hymem_short
    def test_a_missing_seam_changes_nothing(self, stage: Stage) -> None:
        """Where a place is not there, the error names it, and nothing has been changed."""
        from hymem import SeamMissing

        patches = stage.framework.switches.patches()
        needed = [patch for patch in patches if patch.needed and hasattr(patch.place, "owner")]
        assert needed, "the integration needs no place"
        for missing in needed:
            original = missing.place.get()
            delattr(missing.place.owner, missing.place.attribute)
            try:
                before = [patch.place.get() for patch in patches]
                with pytest.raises(SeamMissing, match=r"[Nn]othing was changed") as raised:
                    stage.framework.module.enable()
                after = [patch.place.get() for patch in patches]
                assert missing.place.name in raised.value.missing
                assert all(new is old for new, old in zip(after, before, strict=True))
            finally:
                missing.place.set(original)

    def test_versions(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One that is too old is an error; one that is unknown, or newer, works if its seams are there."""
        from hymem import UnsupportedVersion

        known = stage.framework.switches.framework
        real = importlib.metadata.version

        def pretend(version: str | None) -> None:
            def found(name: str) -> str:
                if name == known.distribution and version is None:
                    raise importlib.metadata.PackageNotFoundError(name)
                return str(version) if name == known.distribution else real(name)

            monkeypatch.setattr("importlib.metadata.version", found)

        pretend("0.0.1")
        for switch in (stage.framework.module.register, stage.framework.module.enable):
            with pytest.raises(UnsupportedVersion, match=known.floor):
                switch()
        for version in (None, "999"):
            pretend(version)
            with caplog.at_level(logging.INFO), stage.framework.module.register() as handle:
                assert all(handle.status().values())
        assert "newer" in caplog.text

    def test_an_older_core_is_refused(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a core of another minor version nothing is changed, and the error names the one."""
        from hymem import UnsupportedVersion

        places = [patch.place for patch in stage.framework.switches.patches()]
        before = [place.get() for place in places]
        monkeypatch.setattr("hymem.__version__", "0.0.9")
        with pytest.raises(UnsupportedVersion, match=r"pip install \"hymem=="):
            stage.framework.module.register()
        after = [place.get() for place in places]
        assert all(new is old for new, old in zip(after, before, strict=True))

    def test_the_integration_removed_while_configured(self, stage: Stage) -> None:
        """The framework says what it does not know, and works with the configuration before."""
        self._needs_names(stage)
        after, before = stage.after(), stage.before()
        (with_it, without), _ = stage.run("removed", before=before, after=after)
        assert "hy_memory" in with_it
        assert without == "opened"
        assert stage.writer.requests == []

    # -- without a line of code, and when it does not do what it should ----------------------------

    @pytest.mark.hymem_short
    def test_the_configuration_alone_is_enough(self, stage: Stage) -> None:
        """With `hymem-autoload` installed, a program that names the writer in the framework's own
        configuration needs no import of ours."""
        self._needs_names(stage)
        stage.framework.script(stage.writer, [OSLO])
        found, _ = stage.run("hooked", configuration=stage.after(), watched=stage.watched, environ={})
        assert found == [OSLO]
        assert len(stage.writer.chats) == len(stage.sites)
        assert stage.main.chats == []
        stage.check_keys()

    @pytest.mark.hymem_short
    def test_the_environment_alone_is_enough(self, stage: Stage) -> None:
        """The same for `HYMEM_ENABLE`, and a configuration that knows of no writer."""
        stage.framework.script(stage.writer, [OSLO])
        environ = {"HYMEM_ENABLE": stage.id, **stage.environ}
        found, _ = stage.run("hooked", configuration=stage.before(), watched=stage.watched, environ=environ)
        assert found == [OSLO]
        assert len(stage.writer.chats) == len(stage.sites)
        assert stage.main.chats == []
        stage.check_keys()

    def test_a_program_that_is_run(self, stage: Stage) -> None:
        """The same for `python -m hymem run`."""
        stage.framework.script(stage.writer, [OSLO])
        found, said = stage.run("run", configuration=stage.before(), environ=stage.environ)
        assert found == [OSLO]
        assert stage.main.chats == []
        assert f"{stage.id} writes with 'hy-memory' at {stage.writer.base_url}" in said
        stage.check_keys()

    @pytest.mark.hymem_short
    def test_a_renamed_seam(self, stage: Stage) -> None:
        """In a copy of the framework with one seam named otherwise: `enable()` says which, the hook
        logs one line and leaves a framework that works, and the doctor has a finding."""
        patches = stage.framework.switches.patches()
        places = [patch.place for patch in patches if patch.needed and hasattr(patch.place, "owner")]
        first = stage.framework.first_seam or stage.framework.framework
        own = [place for place in places if place.name.startswith(first)]
        place = (own or places)[0]
        copy = renamed(place.name.partition(":")[0], place.attribute, stage.place / "renamed")
        stage.framework.script(stage.main, [CAT])
        found, _ = stage.run(
            "without_a_seam", copy, configuration=stage.before(), watched=stage.watched, environ=stage.environ
        )
        assert found["memories"] == [CAT]
        assert not any(SAID in sent.text for sent in stage.writer.chats)
        assert place.name in found["enable"]
        assert "Nothing was changed" in found["enable"]
        assert len(found["logged"]) == 1
        assert place.name in found["logged"][0]
        assert place.name in found["findings"]["seam-missing"]

    def test_the_doctor_shows_the_route(self, stage: Stage) -> None:
        """`doctor --probe` finds nothing wrong, and shows that a write goes to the writer and what is
        no write does not."""
        stage.framework.script(stage.writer, [OSLO])
        stage.writer.reply("Say hello", '{"hymem": "heeded"}')
        bad = {"error": {"message": "", "type": "Bad Request", "param": "body.chat_template_kwargs"}}
        stage.writer.reply(lambda body: body["chat_template_kwargs"] == "hymem", body=bad, status=400)
        found, _ = stage.run("examined", framework=stage.id, environ=stage.environ)
        assert [each for each in found["findings"] if each["level"] == "error"] == []
        route = [fact for fact in found["facts"][stage.id] if fact.startswith("route: ")]
        assert any("reaches the writer" in fact for fact in route)
        assert "route: what is no write reaches the main model" in route
        assert not any("read-astray" in str(each) for each in found["findings"])

    # -- at once, and in other processes ---------------------------------------------------------

    def test_many_threads(self, stage: Stage) -> None:
        """Each of 64 threads finds its own memory in its own user's bank, and the events add up."""
        memory = self._opened_for_many(stage, stage.framework.ways[0])
        with concurrent.futures.ThreadPoolExecutor(MANY) as pool:
            ready = threading.Barrier(MANY)

            def write(word: str) -> None:
                ready.wait(60)
                finish(stage.framework.write(memory, f"I have a {word} .", word))

            for done in [pool.submit(write, word) for word in _words()]:
                done.result()
        self._check_many(stage, memory)

    def test_many_tasks(self, stage: Stage) -> None:
        """The same for 64 tasks of one loop."""
        self._needs_async(stage)
        memory = self._opened_for_many(stage, "async")

        async def write(word: str) -> None:
            await stage.framework.write(memory, f"I have a {word} .", word)

        async def all_at_once() -> None:
            await asyncio.gather(*(write(word) for word in _words()))

        asyncio.run(all_at_once())
        self._check_many(stage, memory)

    def _opened_for_many(self, stage: Stage, way: str) -> Any:
        for word in _words():
            stage.framework.script(stage.writer, [f"Has a {word}"], said=word)
        return stage.opened(way)

    def _check_many(self, stage: Stage, memory: Any) -> None:
        found = {word: finish(stage.framework.memories(memory, word)) for word in _words()}
        assert found == {word: {f"Has a {word}"} for word in _words()}
        assert stage.main.chats == []
        sites = Counter(event.site for event in stage.events)
        assert sites == {site: MANY * count for site, count in Counter(stage.sites).items()}
        assert sum(event.requests for event in stage.events) == len(stage.writer.chats)
        assert sum(event.kept for event in stage.events) == MANY * len(stage.sites)

    def test_three_loops_in_a_row(self, stage: Stage) -> None:
        """`asyncio.run` three times, with every warning an error: no connection of ours is left open."""
        self._needs_async(stage)
        stage.framework.script(stage.writer, [OSLO])
        found, said = stage.run("three_loops", configuration=stage.after())
        assert found >= 3
        assert stage.writer.url.rpartition(":")[2] not in said

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_forked_children(self, stage: Stage, way: str) -> None:
        """After a write and a fork, each child is given its own replies and nobody else's."""
        stage.framework.script(stage.writer, [OSLO])
        words = [[f"word{child}{turn}" for turn in range(6)] for child in range(2)]
        for word in itertools.chain(*words):
            stage.framework.script(stage.writer, [f"Has a {word}"], said=word)
        stage.writer.pause = 0.1  # or they would not meet where the machine is busy
        configurations = [
            each.after(stage.main, stage.settings)
            for each in (stage.framework, stage.at("two"), stage.at("three"))
        ]
        found, _ = stage.run("forked", configurations=configurations, way=way)
        assert found == [[f"Has a {word}" for word in each] for each in words]

    def test_what_a_write_began_is_no_write_afterwards(self, stage: Stage, way: str) -> None:
        """A context, a pool and a task that outlive the write they were begun in ask the main model."""
        stage.framework.script(stage.writer, [OSLO])
        stage.main.reply(None, "an answer")
        found, _ = stage.run("inherited", configuration=stage.after(), way=way)
        assert found == ["an answer"] * 3
        assert len(stage.writer.chats) == len(stage.sites)
        assert len(stage.main.chats) == 3

    def test_a_cancelled_write_is_counted_as_one(self, stage: Stage) -> None:
        """The caller goes away in the middle: one event says so, and nothing is stored."""
        self._needs_async(stage)
        cancelled = threading.Event()

        def once_cancelled(body: Any) -> str:
            cancelled.wait(60)
            return "{}"

        stage.writer.reply(None, once_cancelled)
        memory = stage.opened("async")

        async def given_up() -> None:
            task = asyncio.ensure_future(stage.framework.write(memory, SAID))
            while not stage.writer.chats and not task.done():
                await asyncio.sleep(0.01)
            task.cancel()
            try:
                with pytest.raises(asyncio.CancelledError):
                    await task
            finally:
                cancelled.set()

        asyncio.run(given_up())  # waits for what runs in threads
        assert [event.outcome for event in stage.events] == ["cancelled"]
        assert finish(stage.framework.memories(memory)) == set()

    # -- when it goes wrong ----------------------------------------------------------------------

    @pytest.mark.parametrize("name", FAILURES)
    def test_a_failed_write_is_an_error_of_the_caller(
        self, stage: Stage, caplog: pytest.LogCaptureFixture, name: str, way: str
    ) -> None:
        """Nothing stored, nobody else asked, one event; and no key and no word of the text anywhere."""
        failure = FAILURES[name]
        memory = self._failing(stage, failure, way)
        with caplog.at_level(logging.DEBUG), pytest.raises(Exception) as raised:
            finish(stage.framework.write(memory, SAID))
        error = cause_of(raised.value)
        assert type(error).__name__ == failure.error
        assert getattr(error, "kind", None) == failure.kind
        assert error.site in stage.sites
        assert finish(stage.framework.memories(memory)) == set()
        assert stage.main.chats == []
        (event,) = stage.events
        assert (event.outcome, event.error) == ("failed", failure.error)
        shown = [
            repr(error),
            *traceback.format_exception(error),
            repr(event),
            repr(memory),
            str(raised.value),
        ]
        shown += [logging.Formatter().format(record) for record in caplog.records if _is_ours(record)]
        for text in shown:
            assert SAID.rstrip(".") not in text
            assert WRITERS_KEY not in text
            assert USERS_KEY not in text

    @pytest.mark.parametrize("name", FAILURES)
    def test_skip_leaves_things_as_they_are(
        self, stage: Stage, caplog: pytest.LogCaptureFixture, name: str, way: str
    ) -> None:
        """With `on_failure="skip"` the framework goes on with nothing, and the log has an ERROR."""
        memory = self._failing(stage, FAILURES[name], way, on_failure="skip")
        finish(stage.framework.write(memory, SAID))
        assert finish(stage.framework.memories(memory)) == set()
        assert stage.main.chats == []
        assert {event.outcome for event in stage.events} == {"failed"}
        ours = [record for record in caplog.records if record.name.startswith("hymem")]
        assert any(record.levelno == logging.ERROR for record in ours)

    @pytest.mark.parametrize("name", FAILURES)
    def test_fallback_has_the_main_model_write(self, stage: Stage, name: str, way: str) -> None:
        """With `on_failure="fallback"` the same contract is filled by the main model, and that is told."""
        memory = self._failing(stage, FAILURES[name], way, on_failure="fallback")
        stage.framework.script(stage.main, [OSLO])
        finish(stage.framework.write(memory, SAID))
        assert finish(stage.framework.memories(memory)) == {OSLO}
        assert len(stage.main.chats) == len(stage.sites)
        assert [event.outcome for event in stage.events] == ["ok"] * len(stage.sites)
        assert all("fell_back" in event.steps for event in stage.events)

    @staticmethod
    def _failing(stage: Stage, failure: Failure, way: str, **settings: Any) -> Any:
        failure.befall(stage.writer, stage.adapter.rubbish)
        return stage.opened(way, **settings, **failure.settings)

    def test_what_is_not_a_write_needs_a_main_model(self, stage: Stage, way: str) -> None:
        """With a writer alone, such a call is an error that names what to set; it is never sent there."""
        if stage.framework.has_own_main:
            pytest.skip("what is not a write has a model object of its own")
        from hymem import NoMainModel

        stage.framework.module.register()
        memory = stage.framework.open(stage.framework.after(None, stage.settings), way)
        with pytest.raises(Exception) as raised:
            finish(stage.framework.read(memory, "a question"))
        assert isinstance(cause_of(raised.value), NoMainModel)
        assert stage.writer.requests == []

    # -- helpers ---------------------------------------------------------------------------------

    @staticmethod
    def _needs_names(stage: Stage) -> None:
        if not stage.framework.has_names:
            pytest.skip("this version's configuration names no provider that could be ours")

    @staticmethod
    def _needs_async(stage: Stage) -> None:
        if "async" not in stage.framework.ways:
            pytest.skip("there is no async object")


def _words() -> list[str]:
    return [f"word{at:03d}x" for at in range(MANY)]


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def _is_ours(record: logging.LogRecord) -> bool:
    """Records of hymem, and of the HTTP client about requests to the writer: frameworks, and their
    own clients, log what they like."""
    client = record.name.startswith(("openai", "httpx", "httpcore"))
    return record.name.startswith("hymem") or (client and "/chat/completions" in record.getMessage())
