"""The record of every write: one event each, handed to observers, counted, logged, written down.

An event carries counts and names. Conversation and memory text are in none, unless
`record_content` asks for them, and then only in the record file.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .errors import SettingsError
from .process import on_fork

OUTCOMES = ("ok", "empty", "partial", "failed", "cancelled")
MAX_RECORD = 64 << 20
MAX_PENDING = 256


class WriteEvent(NamedTuple):
    """What became of one write. `seconds` is wall time, tokens are as the server reported them,
    `error` is the name of the error's class and `message` its text, `at` is `time.time()`."""

    site: str
    outcome: str
    steps: tuple[str, ...]
    kept: int
    dropped: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    base_url: str
    model: str
    framework: str | None = None
    error: str | None = None
    message: str | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """Sums over events."""

    writes: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[str, int] = field(default_factory=dict)
    kept: int = 0
    dropped: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    unknown_sites: int = 0


_all_counters: weakref.WeakSet[Counters] = weakref.WeakSet()
_all_records: weakref.WeakSet[Record] = weakref.WeakSet()
_times_logged: Counter[tuple[str, ...]] = Counter()


def _forget() -> None:
    for counters in list(_all_counters):
        counters._reset()
    for record in list(_all_records):
        record._reset()
    _times_logged.clear()


class Counters:
    """Adds up events; belongs to one process."""

    def __init__(self) -> None:
        self._reset()
        _all_counters.add(self)
        on_fork(_forget)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[WriteEvent] = []
        self._sums: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._sites: Counter[str] = Counter()
        self._seconds = 0.0

    def add(self, event: WriteEvent) -> None:
        self._pending.append(event)  # atomic; adding up can wait
        if len(self._pending) >= MAX_PENDING:
            with self._lock:
                self._add_up()

    def _add_up(self) -> None:
        count = len(self._pending)
        events, self._pending[:count] = self._pending[:count], []
        sums = self._sums
        for event in events:
            sums["writes"] += 1
            sums["kept"] += event.kept
            sums["dropped"] += event.dropped
            sums["requests"] += event.requests
            sums["prompt_tokens"] += event.prompt_tokens
            sums["completion_tokens"] += event.completion_tokens
            self._outcomes[event.outcome] += 1
            self._sites[event.site] += 1
            self._seconds += event.seconds
            for step in event.steps:
                self._steps[step] += 1

    def unknown_site(self) -> int:
        """Count a call of a kind the catalogue does not know; how many there were by now."""
        with self._lock:
            self._sums["unknown_sites"] += 1
            return self._sums["unknown_sites"]

    def read(self) -> Stats:
        with self._lock:
            self._add_up()
            return Stats(
                **self._sums,
                outcomes=dict(self._outcomes),
                steps=dict(self._steps),
                sites=dict(self._sites),
                seconds=self._seconds,
            )


_process = Counters()


def stats() -> Stats:
    """Sums over every write of this process."""
    return _process.read()


def count_unknown_site() -> None:
    """Count, for the process, a write whose call site no catalogue knows."""
    _process.unknown_site()


Observer = Callable[[WriteEvent], None]
_observers: list[Observer] = []


def observe(observer: Observer) -> Callable[[], None]:
    """Have `observer` called with every event of this process, in the thread of the write.
    Returns a function that takes it off again. What an observer raises is logged, not raised."""
    _observers.append(observer)

    def stop() -> None:
        if observer in _observers:
            _observers.remove(observer)

    return stop


def publish(event: WriteEvent, counters: Counters) -> None:
    """Count an event and tell of it. Never raises: it runs while a write's own error may be on
    its way to the caller."""
    counters.add(event)
    _process.add(event)
    _log(event)
    for observer in tuple(_observers):
        try:
            observer(event)
        except Exception:
            logging.getLogger("hymem").exception("an observer of write events failed")


def _log(event: WriteEvent) -> None:
    """A failed write at ERROR, a partial one at WARNING; repeats of a kind at powers of ten."""
    if event.outcome not in ("failed", "partial"):
        return
    kind = (event.framework or "", event.site, event.outcome, event.error or "")
    _times_logged[kind] += 1
    times = _times_logged[kind]
    if not is_power_of_ten(times):
        return
    logger = logging.getLogger(f"hymem.{event.framework}" if event.framework else "hymem")
    again = f" ({times} times so far)" if times > 1 else ""
    if event.outcome == "failed":
        logger.error("a memory write failed%s: %s", again, event.message or f"{event.site}: {event.error}")
    else:
        logger.warning("%s: kept %d items, lost %d%s", event.site, event.kept, event.dropped, again)


def is_power_of_ten(number: int) -> bool:
    while number >= 10 and number % 10 == 0:
        number //= 10
    return number == 1


# -- the record ----------------------------------------------------------------------------------


class Record:
    """Events as JSON lines in `directory/hymem-<process id>.jsonl`, readable by the owner only."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reset()
        _all_records.add(self)
        on_fork(_forget)
        self._open()  # a directory that cannot be written to is an error now, not a lost record later

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._file: int | None = None
        self._full = False

    def _open(self) -> int:
        if self._file is None:
            path = self._directory / f"hymem-{os.getpid()}.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                file = os.open(path, flags, 0o600)
            except OSError as error:
                raise SettingsError(f"record: cannot write {path}: {error.strerror}") from None
            if os.fstat(file).st_mode & 0o077:
                os.close(file)
                raise SettingsError(f"record: {path} can be read by others; remove it or chmod 600")
            self._file = file
            weakref.finalize(self, os.close, file).atexit = False
        return self._file

    def add(self, event: WriteEvent, content: Mapping[str, Any] | None) -> None:
        """Append a line; past the size bound say so once and stop. Never raises."""
        row = {**event._asdict(), **({"content": content} if content else {})}
        try:
            line = json.dumps(row, ensure_ascii=True, default=str).encode() + b"\n"
            with self._lock:
                file = self._open()
                if os.fstat(file).st_size + len(line) <= MAX_RECORD:
                    os.write(file, line)
                elif not self._full:
                    self._full = True
                    logging.getLogger("hymem").error("record: %s is full; no more is kept", self._directory)
        except (OSError, SettingsError) as error:
            logging.getLogger("hymem").error("record: an event could not be kept: %s", error)
        except (ValueError, TypeError, RecursionError) as error:  # content that is no JSON
            name = type(error).__name__
            logging.getLogger("hymem").error("record: an event could not be written: %s", name)
