"""Episodes whose write failed, kept until they are written.

`everos` takes messages out of a session's buffer, and then has their episode written: if that fails, nothing
tries it again (1.0 to 1.5.1). So for as long as an episode is not written there is a file for its memcell in
`.hymem/episodes` of the memory root, locked while somebody is at it. It names the memcell, whose text is in
EverMemOS's own database. What is left there is written after the next add or flush that works, and by
`python -m hymem replay evermemos`.

What `everos` does in the background (facts, profiles, skills) it tries three times in a few seconds, and
keeps as a dead letter then. Those that were given up because of a writer that was away go back into its queue
in the same way, and so do adds with `async_mode` (1.5) whose messages have not got into a buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import functools
import glob
import importlib
import importlib.metadata
import inspect
import json
import os
import sqlite3
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from packaging.version import Version

from hymem.errors import HymemError, WriterUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TRIES = 3
"""How often an episode whose reply cannot be used is tried without being asked for. That the writer is away,
or the disk full, is no try."""
AWAY = WriterUnavailable.__name__
OURS = (AWAY, "ReplyRejected", "PromptTooLong")
"""How the error of a dead letter begins that is one of ours."""
NOT_IN_A_BUFFER = f"{AWAY}: evermemos.boundaries:"
"""How that of an add begins which failed before its messages were anywhere else."""


class EngineRuns(HymemError):
    """Another process has this memory root in use."""


def root() -> Path:
    """The memory root, as EverMemOS finds it; without importing it, which takes ten seconds."""
    if _is_before_roots():
        environ = environment()
        named = environ.get("EVEROS_MEMORY__ROOT") or _root_in(file())
    else:
        named = _on_the_command_line() or os.environ.get("EVEROS_ROOT")
    return Path(named or "~/.everos").expanduser().resolve()


def file() -> Path:
    """The user's settings: `everos.toml` in the root, before 1.1 `config.toml`."""
    if _is_before_roots():
        return Path(environment().get("EVEROS_CONFIG_FILE") or "~/.everos/config.toml").expanduser()
    return root() / "everos.toml"


def _on_the_command_line() -> str | None:
    """`everos ... --root PLACE`, which gets into the environment when its modules are imported already."""
    program, *given = sys.argv or [""]
    if Path(program).name != "everos":
        return None
    for at, each in enumerate(given):
        if each.startswith("--root="):
            return each.removeprefix("--root=")
        if each == "--root" and given[at + 1 :]:
            return given[at + 1]
    return None


def environment() -> Mapping[str, str]:
    """Before 1.1 with what stands in the first `.env` file of those that its server looks for."""
    if not _is_before_roots():
        return os.environ
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    for place in (".env", f"{settings}/everos/.env", "~/.everos/.env"):
        path = Path(place).expanduser()
        if path.is_file():
            from dotenv import dotenv_values  # EverMemOS 1.0 needs it itself

            found = {name: each for name, each in dotenv_values(path).items() if each is not None}
            return {**found, **os.environ}
    return os.environ


def _is_before_roots() -> bool:
    try:
        return Version(importlib.metadata.version("everos")) < Version("1.1")
    except importlib.metadata.PackageNotFoundError:
        return False


def read_toml(path: Path) -> Mapping[str, Any]:
    """A file that cannot be read is EverMemOS's to complain of."""
    try:
        found: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def _root_in(path: Path) -> str | None:
    memory = read_toml(path).get("memory")
    return memory.get("root") if isinstance(memory, dict) else None


# -- the files -----------------------------------------------------------------------------------


class Entry:
    """The file of one memcell, locked until it is let go."""

    def __init__(self, path: Path, descriptor: int, known: Mapping[str, Any]) -> None:
        self.path, self._descriptor = path, descriptor
        self.known = dict(known)

    @classmethod
    def of(cls, path: Path, known: Mapping[str, Any] | None = None) -> Entry | None:
        """A new one, or with no `known` one that is there. None if somebody has it, or it has gone."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if known is None else os.O_CREAT)
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            if known is None:
                return None
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink == 0:  # written, and taken away, while it was opened
                raise BlockingIOError
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            found = os.pread(descriptor, 1 << 16, 0)
            entry = cls(path, descriptor, _loads(found) if found else {"tries": 0, **(known or {})})
            entry._save()
        except BaseException:
            os.close(descriptor)  # and with it the lock
            raise
        return entry

    def _save(self) -> None:
        data = json.dumps(self.known).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def failed(self, error: BaseException) -> None:
        """Leave it for another time."""
        if isinstance(error, Exception) and not isinstance(error, (WriterUnavailable, OSError)):
            self.known["tries"] = int(self.known.get("tries", 0)) + 1
        self.known["error"] = type(error).__name__
        with contextlib.suppress(OSError):  # it is there, with what was known before
            self._save()
        self.let_go()

    def note(self, owner: str) -> None:
        """That the episode of one of its users is written, and that EverMemOS knows."""
        self.known.setdefault("written", []).append(owner)
        with contextlib.suppress(OSError):
            self._save()

    def let_go(self) -> None:
        os.close(self._descriptor)

    def done(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.let_go()


def _loads(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"tries": 0}


def _folder() -> Path:
    return root() / ".hymem" / "episodes"


def _files() -> list[Path]:
    return sorted(_folder().glob("*.json"))


# -- the seams -----------------------------------------------------------------------------------


class Journal:
    """What the seams around an episode do."""

    def __init__(self) -> None:
        self._again: asyncio.Task[None] | None = None
        self._busy: dict[str, Entry] = {}
        self._pipeline: weakref.ref[Any] = weakref.ref(self)
        self.works = False
        """Whether the last write got an answer."""

    def client(self) -> Any:
        """What episodes are written with, or None where nobody of ours writes them: then they wait."""
        from .seams import INTEGRATION

        if INTEGRATION.writer is not None:
            return importlib.import_module("everos.component.llm").get_llm_client()
        pipeline = self._pipeline()
        return pipeline._ep_ext._llm if pipeline is not None and _is_ours(pipeline) else None

    def keeping(self, switch: Any) -> Callable[[Any], Any]:
        """`UserMemoryPipeline.run`, whose memcells are kept until their episodes are written."""

        journal = self

        def wrap(original: Any) -> Any:
            signature = inspect.signature(original)

            @functools.wraps(original)
            async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not switch.on or not _is_ours(self):
                    return await original(self, *args, **kwargs)
                given = signature.bind(self, *args, **kwargs).arguments
                entries = _begun(given["ingested"], given["memcell_ids"])
                journal._pipeline = weakref.ref(self)
                with journal.at_work(entries):
                    return await original(self, *args, **kwargs)

            return run

        return wrap

    def trying_again(self, switch: Any) -> Callable[[Any], Any]:
        """`prepare_cells`, of each add and flush: when it has gone well, so may what has failed before."""

        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            async def prepare_cells(*args: Any, **kwargs: Any) -> Any:
                prepared = await original(*args, **kwargs)
                if switch.on and (self._again is None or self._again.done()):
                    # Not in this request: its caller waits, and the session is locked.
                    self._again = asyncio.ensure_future(_in_background())
                return prepared

            return prepare_cells

        return wrap

    def noting(self, switch: Any) -> Callable[[Any], Any]:
        """`OfflineEngine.emit`: which users of a memcell have their episode."""

        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            async def emit(engine: Any, event: Any, *args: Any, **kwargs: Any) -> Any:
                done = await original(engine, event, *args, **kwargs)
                entry = self._busy.get(getattr(event, "memcell_id", ""))
                if entry is not None and type(event).__name__ == "EpisodeExtracted":
                    entry.note(event.owner_id)
                return done

            return emit

        return wrap

    @contextlib.contextmanager
    def at_work(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Whatever comes out of it stays kept, unless it is the end."""
        self._busy.update({each.path.stem: each for each in entries})
        try:
            yield
        except BaseException as error:
            for each in entries:
                each.failed(error)
            raise
        else:
            for each in entries:
                each.done()
        finally:
            for each in entries:
                self._busy.pop(each.path.stem, None)


JOURNAL = Journal()


def _is_ours(pipeline: Any) -> bool:
    """Whether its episodes are written by a writer of ours."""
    from .models import HyMemoryLLM
    from .seams import INTEGRATION

    client = getattr(getattr(pipeline, "_ep_ext", None), "_llm", None)
    if client is None:
        return False
    while client is not None and not isinstance(client, HyMemoryLLM):
        client = getattr(client, "_inner", None)  # EverMemOS's own wrappers
    return INTEGRATION.writer is not None or client is not None


def _begun(ingested: Any, memcells: Sequence[str]) -> list[Entry]:
    """That they cannot be kept keeps nobody from writing them."""
    from .seams import INTEGRATION

    scope = {name: getattr(ingested, name) for name in ("session_id", "app_id", "project_id")}
    entries = []
    for each in memcells:
        try:
            _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            entries.append(Entry.of(_folder() / f"{each}.json", {"memcell": each, **scope}))
        except OSError as error:
            INTEGRATION.log.error("%s cannot be kept in %s: %s", each, _folder(), error.strerror)
    return [each for each in entries if each is not None]


# -- another time --------------------------------------------------------------------------------


async def _in_background() -> None:
    from .seams import INTEGRATION

    try:
        await write_kept(asked_for=False)
        if JOURNAL.works:
            if await asyncio.to_thread(_given_up, (AWAY,)):
                await give_back((AWAY,), TRIES)
            if await asyncio.to_thread(_undelivered):
                await deliver_again(TRIES)
    except Exception as error:  # a task that nobody waits for
        INTEGRATION.log.error("what was kept could not be written: %s", type(error).__name__)


async def write_kept(*, asked_for: bool, progress: Callable[[str], None] = lambda line: None) -> None:
    """The episodes of all memcells that wait. While the writer is away, no more than one is tried."""
    from .seams import INTEGRATION

    for path in _files() if JOURNAL.client() is not None else ():
        entry = Entry.of(path)
        if entry is None:
            continue
        tries = int(entry.known.get("tries", 0))
        if tries >= TRIES and not asked_for:
            entry.let_go()
            continue
        try:
            with JOURNAL.at_work([entry]):
                written = await _write_one(path.stem, entry.known)
        except BaseException as error:
            progress(f"the episode of {path.stem} could not be written: {type(error).__name__}")
            if isinstance(error, WriterUnavailable) or not isinstance(error, Exception):
                raise
            level = INTEGRATION.log.error if tries + 1 >= TRIES else INTEGRATION.log.warning
            level(
                "the episode of %s could not be written (%s), %d tries",
                path.stem,
                type(error).__name__,
                tries + 1,
            )
        else:
            progress(f"the episode of {path.stem} {'is written' if written else 'was there already'}")


async def _write_one(memcell: str, known: Mapping[str, Any]) -> bool:
    """The episode of a memcell for those of its users who have none, and what follows from it. False: all
    have theirs."""
    from everalgo.types import MemCell
    from everos.infra.persistence.sqlite import memcell_repo
    from everos.memory import IngestResult
    from everos.memory.extract.pipeline import UserMemoryPipeline, user_memory

    from .seams import INTEGRATION

    rows = await memcell_repo.find_by_ids([memcell])
    if not rows:
        raise LookupError(f"{memcell} is not in EverMemOS's database")
    (row,) = rows
    cell = MemCell.model_validate_json(row.payload_json)
    told = set(known.get("written", ()))
    there = {user for user in user_memory._unique_user_senders(cell) if _is_written(memcell, user)}
    if untold := there - told:  # it ended between the two
        INTEGRATION.log.error("the episode of %s is there, and its facts may be missing", memcell)
    if set(user_memory._unique_user_senders(cell)) <= told | untold:
        return False
    pipeline = UserMemoryPipeline(
        episode_writer=_Missing(_service()._get_episode_writer(), told | untold),
        prompt_loader=_service()._get_prompt_loader(),
        llm_client=JOURNAL.client(),
        engine=_Telling(_service()._get_engine(), told | untold),
    )
    scope = {name: getattr(row, name) for name in ("session_id", "app_id", "project_id")}
    original = getattr(UserMemoryPipeline.run, "__wrapped__", UserMemoryPipeline.run)
    await original(
        pipeline,
        IngestResult(messages=[], **scope),
        cells=[cell],
        memcell_ids=[memcell],
        per_cell_all_senders=[json.loads(row.sender_ids_json)],
    )
    return True


def _service() -> Any:
    """The module; the package has a function of that name."""
    return importlib.import_module("everos.service.memorize")


def _is_written(memcell: str, user: str) -> bool:
    """Whether a user's episodes name it. Ids are not used twice."""
    wanted = memcell.encode()
    found = root().glob(f"**/users/{glob.escape(user)}/episodes/*.md")
    return any(wanted in path.read_bytes() for path in found)


class _Missing:
    """EverMemOS's writer of episodes, for users who have none yet."""

    def __init__(self, writer: Any, have: Set[str]) -> None:
        self._writer, self._have = writer, have

    async def append_entry(self, owner: str, **given: Any) -> Any:
        if owner in self._have:
            return types.SimpleNamespace(date=datetime.date.today(), format=lambda: "")
        return await self._writer.append_entry(owner, **given)

    def path_for(self, *args: Any, **kwargs: Any) -> Any:
        return self._writer.path_for(*args, **kwargs)


class _Telling:
    """EverMemOS's engine, which has been told that the memcell is there, and of these users' episodes."""

    def __init__(self, engine: Any, have: Set[str]) -> None:
        self._engine, self._have = engine, have

    async def emit(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "UserPipelineStarted" or (kind == "EpisodeExtracted" and event.owner_id in self._have):
            return
        await self._engine.emit(event)


_given_back: Counter[tuple[str, int]] = Counter()


async def give_back(kinds: Sequence[str], times: int | None = None) -> int:
    """Have EverMemOS try what it has given up with an error of these kinds, as it does after a crash, each
    no more than `times` in this process; how many there were."""
    from everos.component.utils.datetime import get_utc_now
    from everos.infra.ome.records import RunStatus

    engine = _service()._get_engine()
    store = engine._run_record_store
    count = 0
    for meta in engine._registry.all() if store is not None else ():
        for record in await store.list_runs(strategy_name=meta.name, status=RunStatus.DEAD_LETTER):
            each = (meta.name, hash(record.event_payload))
            known = (record.error or "").partition(":")[0] in kinds
            if not known or (times is not None and _given_back[each] >= times):
                continue
            _given_back[each] += 1
            count += 1
            again = f"{record.run_id}-again"
            given = (record.event_topic, record.event_payload, record.max_retries_snapshot)
            await store.mark_crashed(
                run_id=record.run_id, finished_at=get_utc_now(), error=f"tried again as {again}"
            )
            await engine._enqueue_recovery_job(meta.name, again, *given)
    return count


async def deliver_again(times: int | None = None) -> int:
    """Have EverMemOS's queue deliver adds again that failed since the writer was away; how many."""
    from everos.infra.persistence.sqlite import memorize_inbox_repo

    rows, _ = await memorize_inbox_repo.list_tasks(status="failed", limit=200)
    count = 0
    for row in reversed(rows):  # in the order in which they were sent
        each = ("add", row.id)
        known = (row.last_error or "").startswith(NOT_IN_A_BUFFER) and row.payload_json
        if known and (times is None or _given_back[each] < times):
            _given_back[each] += 1
            count += 1
            await memorize_inbox_repo.mark(row.id, status="queued")
    return count


# -- for the command line ------------------------------------------------------------------------


class Waiting:
    """What waits in the memory root of this environment."""

    def count(self) -> int:
        return len(_files()) + _given_up(OURS) + _undelivered()

    def replay(self, progress: Callable[[str], None]) -> int:
        asyncio.run(_replay(progress))
        return self.count()


KEPT = Waiting()


def _given_up(kinds: Sequence[str]) -> int:
    """Dead letters with an error of these kinds."""
    likes = " OR ".join("error LIKE ?" for _ in kinds)
    asked = f"SELECT count(*) FROM run_record WHERE status = 'dead_letter' AND ({likes})"
    return _counted("ome.db", asked, [f"{each}:%" for each in kinds])


def _undelivered() -> int:
    """Adds that EverMemOS's queue has given up before their messages were in a buffer."""
    asked = "SELECT count(*) FROM memorize_inbox WHERE status = 'failed' AND last_error LIKE ?"
    return _counted("system.db", asked, [f"{NOT_IN_A_BUFFER}%"])


def _counted(database: str, asked: str, given: Sequence[str]) -> int:
    """Without EverMemOS, which a process that only counts does not import. A table that is not there is of a
    version that has none."""
    path = root() / ".index" / "sqlite" / database
    if not path.is_file():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (count,) = connection.execute(asked, given).fetchone()
    except sqlite3.Error:
        return 0
    return int(count)


async def _replay(progress: Callable[[str], None]) -> None:
    """In EverMemOS as its server has it, but for the HTTP."""
    from everos.core.observability.logging import configure_logging
    from everos.entrypoints.api.app import create_app
    from everos.infra.ome.exceptions import EngineLockHeldError

    os.environ.update(environment())
    configure_logging(level="ERROR")
    app = create_app()
    with _told_of_another(EngineLockHeldError):
        async with app.router.lifespan_context(app):
            with contextlib.suppress(WriterUnavailable):  # it has been told, and the rest waits
                await write_kept(asked_for=True, progress=progress)
                engine = _service()._get_engine()
                if count := await give_back(OURS):
                    progress(f"{count} that EverMemOS had given up are tried again")
                if _undelivered() and (count := await deliver_again()):
                    progress(f"{count} adds are delivered again")
                    await _until_delivered()
                while not await engine.wait_idle(timeout=10.0):
                    progress("waiting for EverMemOS's background work")


async def _until_delivered() -> None:
    from everos.infra.persistence.sqlite import memorize_inbox_repo

    while await memorize_inbox_repo.count_pending():
        await asyncio.sleep(0.2)


@contextlib.contextmanager
def _told_of_another(lock_held: type[Exception]) -> Iterator[None]:
    try:
        yield
        return
    except lock_held:
        pass
    raise EngineRuns(f"EverMemOS runs on {root()}: an add or a flush there writes what is kept; or stop it")
