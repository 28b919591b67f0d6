"""Episodes that are kept: of which users, by whom they are written, and how often it is tried. That EverOS
itself does all of it is in `test_server.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json

import evermemos_bank as bank
import pytest
from everos_server import VERSION
from packaging.version import Version

import hymem_evermemos
from hymem import ReplyRejected, WriterUnavailable
from hymem_evermemos import kept

CELL = "mc_aaaaaaaaaaaa"
OSLO = json.dumps({"title": "Home", "content": "Ann and Bob live in Oslo.", "summary": "s"})


@pytest.fixture
def root(tmp_path, monkeypatch):
    from everos.config import load_settings

    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path))
    monkeypatch.setenv("EVEROS_MEMORY__ROOT", str(tmp_path))
    load_settings.cache_clear()
    yield tmp_path
    load_settings.cache_clear()


@pytest.fixture
def everos(root, monkeypatch, hymem_main):
    """EverMemOS's own writer of episodes, an engine that is told of events and does nothing, and its table of
    memcells with one in it, of two users."""
    from everalgo.types import ChatMessage, MemCell
    from everos.component.llm import client
    from everos.core.persistence import MemoryRoot
    from everos.infra.ome.engine import OfflineEngine
    from everos.infra.persistence.markdown import EpisodeWriter
    from everos.infra.persistence.sqlite import memcell_repo

    told = []

    async def emit(self, event):
        told.append((type(event).__name__, getattr(event, "owner_id", "")))

    said = [
        ChatMessage(id=user, role="user", sender_id=user, content="We live in Oslo.", timestamp=bank.AT)
        for user in ("ann", "bob")
    ]
    cell = MemCell(items=said, timestamp=bank.AT)

    class Row:
        session_id, app_id, project_id = "s", "default", "default"
        payload_json, sender_ids_json = cell.model_dump_json(), '["ann", "bob"]'

    async def find_by_ids(wanted):
        return [Row() for each in wanted if each == CELL]

    class Prompts:
        def load(self, name):
            return None

    service = kept._service()
    home = MemoryRoot.resolve() if hasattr(MemoryRoot, "resolve") else MemoryRoot.default()
    monkeypatch.setattr(OfflineEngine, "emit", emit)
    monkeypatch.setattr(memcell_repo, "find_by_ids", find_by_ids)
    monkeypatch.setattr(service, "_episode_writer", EpisodeWriter(home))
    monkeypatch.setattr(service, "_prompt_loader", Prompts())
    monkeypatch.setattr(service, "_ome_engine", OfflineEngine.__new__(OfflineEngine))
    monkeypatch.setattr(client, "_llm_client", bank.client(hymem_main.model, hymem_main.base_url))
    monkeypatch.setattr(kept, "JOURNAL", kept.JOURNAL)
    service.told, service.cell = told, cell
    return service


def pipeline(everos, llm):
    from everos.memory.extract.pipeline import UserMemoryPipeline

    return UserMemoryPipeline(
        episode_writer=everos._episode_writer,
        prompt_loader=everos._prompt_loader,
        llm_client=llm,
        engine=everos._ome_engine,
    )


def run(everos, made):
    from everos.memory import IngestResult

    given = {"cells": [everos.cell], "memcell_ids": [CELL], "per_cell_all_senders": [["ann", "bob"]]}
    asyncio.run(made.run(IngestResult(session_id="s", messages=[]), **given))


def again(**more):
    asyncio.run(kept.write_kept(**{"asked_for": False, **more}))


def test_each_user_has_one_episode_and_is_told_of_once(everos, root, hymem_writer, monkeypatch):
    from everos.component.llm import get_llm_client

    hymem_writer.reply(None, OSLO)
    hymem_evermemos.enable(base_url=hymem_writer.base_url)
    append = everos._episode_writer.append_entry

    async def full(owner, **given):
        if owner == "bob":
            raise OSError(28, "No space left on device")
        return await append(owner, **given)

    monkeypatch.setattr(everos._episode_writer, "append_entry", full)
    with pytest.raises(OSError, match="space"):
        run(everos, pipeline(everos, get_llm_client()))
    assert kept.KEPT.count() == 1
    monkeypatch.setattr(everos._episode_writer, "append_entry", append)
    again()
    assert kept.KEPT.count() == 0
    written = {path.parts[-3]: path.read_text() for path in root.glob("**/episodes/*.md")}
    assert {user: text.count("live in Oslo") for user, text in written.items()} == {"ann": 1, "bob": 1}
    extracted = [owner for kind, owner in everos.told if kind == "EpisodeExtracted"]
    assert extracted == ["ann", "bob"]
    assert [kind for kind, _ in everos.told].count("UserPipelineStarted") == 1


def test_nobody_but_a_writer_writes_what_is_kept(everos, hymem_writer, hymem_main):
    """Of one pipeline that was attached: with its writer, and when it is let go, by nobody."""
    hymem_writer.reply(None, answer=bank.REFUSED)
    attached = pipeline(everos, bank.client(hymem_main.model, hymem_main.base_url))
    with hymem_evermemos.attach(attached, base_url=hymem_writer.base_url) as handle:
        with pytest.raises(WriterUnavailable):
            run(everos, attached)
        hymem_writer.clear()
        hymem_writer.reply(None, OSLO)
        assert kept.JOURNAL.client() is attached._ep_ext._llm
        handle.disable()
        hymem_evermemos.register()
        assert kept.JOURNAL.client() is None
        again()
        assert kept.KEPT.count() == 1
        hymem_evermemos.enable(base_url=hymem_writer.base_url)
        again()
    assert kept.KEPT.count() == 0
    assert hymem_main.chats == []


def test_a_reply_that_cannot_be_used_is_tried_three_times(everos, hymem_writer):
    from everos.component.llm import get_llm_client

    hymem_writer.reply(None, "I remember.")
    hymem_evermemos.enable(base_url=hymem_writer.base_url)
    with pytest.raises(ReplyRejected):
        run(everos, pipeline(everos, get_llm_client()))
    for _ in range(5):
        again()
    asked = len(hymem_writer.chats)
    again()
    assert len(hymem_writer.chats) == asked
    again(asked_for=True)
    assert len(hymem_writer.chats) > asked
    assert kept.KEPT.count() == 1


def test_a_place_that_cannot_be_written_keeps_nobody_from_writing(everos, root, hymem_writer, caplog):
    from everos.component.llm import get_llm_client

    (root / ".hymem").write_text("in the way")
    hymem_writer.reply(None, OSLO)
    hymem_evermemos.enable(base_url=hymem_writer.base_url)
    run(everos, pipeline(everos, get_llm_client()))
    assert list(root.glob("**/episodes/*.md"))
    assert "cannot be kept" in caplog.text


def test_a_file_that_could_not_be_written_is_not_held(root, monkeypatch):
    path = root / "mc_b.json"

    def full(self):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(kept.Entry, "_save", full)
        with contextlib.suppress(OSError):
            kept.Entry.of(path, {"memcell": "mc_b"})
    entry = kept.Entry.of(path)
    assert entry is not None
    assert kept.Entry.of(path) is None  # somebody is at it
    entry.done()
    assert kept.Entry.of(path) is None


@pytest.mark.skipif(Version("1.1") > VERSION, reason="roots came with 1.1")
@pytest.mark.parametrize("given", [["--root", "{}"], ["--root={}"]])
def test_a_root_on_the_command_line(tmp_path, monkeypatch, given):
    """It gets into the environment when EverMemOS's modules are imported already."""
    monkeypatch.setenv("EVEROS_ROOT", "/elsewhere")
    monkeypatch.setattr("sys.argv", ["everos", "server", "start", *(each.format(tmp_path) for each in given)])
    (tmp_path / "everos.toml").write_text('[hy_memory]\nmodel = "of-the-root"\n')
    assert kept.root() == tmp_path
    with hymem_evermemos.enable() as handle:
        assert handle.writer.settings.model == "of-the-root"


@pytest.mark.skipif(Version("1.1") <= VERSION, reason="no longer read from 1.1 on")
def test_a_root_in_an_env_file(tmp_path, monkeypatch):
    monkeypatch.delenv("EVEROS_MEMORY__ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"EVEROS_MEMORY__ROOT={tmp_path / 'root'}\n")
    assert kept.root() == tmp_path / "root"
