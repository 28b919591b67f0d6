"""Runs a scenario in a fresh process: `python -m hymem_testing.conformance.child FILE:CLASS NAME JSON`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import importlib
import importlib.util
import inspect
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .adapter import Adapter, finish


def load(named: str) -> type[Adapter]:
    """The adapter class of `FILE:CLASS`."""
    file, _, name = named.rpartition(":")
    sys.path.append(str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("hymem_conformance_adapter", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: type[Adapter] = getattr(module, name)
    return found


def named(adapter: type[Adapter]) -> str:
    """`FILE:CLASS` of an adapter class."""
    return f"{inspect.getfile(adapter)}:{adapter.__name__}"


def imported(
    adapter: Adapter, order: list[str], after: Any, before: Any, settings: dict[str, Any]
) -> list[list[str]]:
    """Import in this order, and write: registered, and then enabled."""
    for module in order:
        importlib.import_module(module)
    found = []
    for configuration, switch in (
        (after, adapter.module.register),
        (before, lambda: adapter.module.enable(**settings)),
    ):
        with switch():
            memory = adapter.open(configuration, adapter.ways[0])
            finish(adapter.write(memory, "I live in Oslo."))
            found.append(sorted(finish(adapter.memories(memory))))
    return found


def three_loops(adapter: Adapter, configuration: Any) -> int:
    """Three event loops in a row, with every warning an error."""
    import hymem

    adapter.module.register()
    memory = adapter.open(configuration, "async")
    warnings.simplefilter("error")
    for _ in range(3):
        finish(adapter.write(memory, "I live in Oslo."))
    gc.collect()
    return hymem.stats().writes


def forked(adapter: Adapter, configurations: list[Any], way: str) -> list[list[str]]:
    """A write, and then forked children that write at once, each for itself."""
    adapter.module.register()
    memory = adapter.open(configurations[0], way)
    finish(adapter.write(memory, "I live in Oslo."))
    start_read, start_write = os.pipe()
    children = []
    for at, configuration in enumerate(configurations[1:]):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(start_write)
            # A loop from before the fork waits on what all share: on Python 3.10 LlamaIndex keeps it.
            asyncio.set_event_loop(asyncio.new_event_loop())
            try:
                # One after the other: opening a store is not always safe beside another process.
                memory = adapter.open(configuration, way)
                os.write(write_end, b"opened\n")
                os.read(start_read, 1)  # ends when the parent lets all of them go
                said = _written_by_child(adapter, memory, at)
            except BaseException as error:
                said = [f"{type(error).__name__}: {error}"]
            os.write(write_end, json.dumps(said).encode())
            os._exit(0)
        os.close(write_end)
        pipe = os.fdopen(read_end)
        pipe.readline()
        children.append((pid, pipe))
    os.close(start_write)
    found = []
    for pid, pipe in children:
        with pipe:
            found.append(json.loads(pipe.read() or '["died"]'))
        os.waitpid(pid, 0)
    return found


def _written_by_child(adapter: Adapter, memory: Any, at: int) -> list[str]:
    for turn in range(6):
        finish(adapter.write(memory, f"I have a word{at}{turn} ."))
    return sorted(finish(adapter.memories(memory)))


def inherited(adapter: Adapter, configuration: Any, way: str) -> list[str]:
    """A pool and a task that were begun inside a write, and ask afterwards."""
    import hymem

    adapter.module.register()
    memory = adapter.open(configuration, way)
    begun: list[Any] = []
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def inside(event: Any) -> None:
        begun.append(contextvars.copy_context())
        pool.submit(int).result()  # its thread is there from now on

    def ask(question: str) -> str:
        return str(finish(adapter.read(memory, question)))

    hymem.observe(inside)
    finish(adapter.write(memory, "I live in Oslo."))
    asked = [begun[0].run(ask, "in its context")]
    asked.append(begun[0].run(pool.submit, ask, "in its pool").result())

    async def in_a_task() -> str:
        loop = asyncio.get_running_loop()
        return str(await begun[0].copy().run(loop.create_task, asyncio.to_thread(ask, "in a task")))

    return [*asked, asyncio.run(in_a_task())]


def removed(adapter: Adapter, before: Any, after: Any) -> list[str]:
    """The integration is not installed any more, and a configuration names it still."""
    # None makes an import fail as if nothing were installed; typeshed knows only modules there.
    sys.modules[adapter.integration] = None  # type: ignore[assignment]
    said = []
    for configuration in (after, before):
        try:
            adapter.open(configuration, adapter.ways[0])
            said.append("opened")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def reloaded(adapter: Adapter, configuration: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Modules that were patched are loaded anew: the patches are gone, and that is seen."""
    handle = adapter.module.enable(**settings)
    patched = sorted({place.partition(":")[0] for place in handle.status()})
    for name in (*patched, adapter.framework):  # the last hands out the others' names
        if name in sys.modules:
            importlib.reload(sys.modules[name])
    lost = not all(handle.status().values())
    left = [each.name for each in handle.disable()]
    adapter.module.disable()
    adapter.module.enable(**settings)
    memory = adapter.open(configuration, adapter.ways[0])
    finish(adapter.write(memory, "I live in Oslo."))
    return {"lost": lost, "left": left, "memories": sorted(finish(adapter.memories(memory)))}


def hooked(
    adapter: Adapter, configuration: Any, watched: dict[str, str], environ: dict[str, str]
) -> list[str]:
    """The start-up hook as after its start-up file, and a program that knows nothing of hymem."""
    _watch(watched, environ)
    return _written(adapter, configuration)


def _watch(watched: dict[str, str], environ: dict[str, str]) -> None:
    import _hymem_autoload

    os.environ.pop("HYMEM_AUTOLOAD", None)
    os.environ.update(environ)
    _hymem_autoload.WATCHED.update(watched)
    _hymem_autoload.watch()


def _written(adapter: Adapter, configuration: Any) -> list[str]:
    memory = adapter.open(configuration, adapter.ways[0])
    finish(adapter.write(memory, "I live in Oslo."))
    return sorted(finish(adapter.memories(memory)))


def run(adapter: Adapter, configuration: Any, environ: dict[str, str]) -> list[str]:
    """What `python -m hymem run` does before a program, and then the program."""
    import hymem.run

    os.environ.update(environ)
    hymem.run.prepare("json.tool", as_module=True)
    return _written(adapter, configuration)


def without_a_seam(
    adapter: Adapter, configuration: Any, watched: dict[str, str], environ: dict[str, str]
) -> dict[str, Any]:
    """A framework that is not laid out as it should be, switched on in every way there is."""
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hymem").addHandler(handler)
    _watch(watched, {**environ, "HYMEM_ENABLE": "all"})
    memories = _written(adapter, configuration)
    seen = list(logged)
    try:
        adapter.module.enable()
        enabled = "enabled"
    except Exception as error:
        enabled = f"{type(error).__name__}: {error}"
    (framework,) = watched.values()
    findings = {each["code"]: each["found"] for each in examined(adapter, framework, environ)["findings"]}
    return {"memories": memories, "logged": seen, "enable": enabled, "findings": findings}


def examined(adapter: Adapter, framework: str, environ: dict[str, str]) -> Any:
    """What the doctor finds."""
    from hymem import doctor

    os.environ.update(environ)
    return json.loads(doctor.examine(framework, probe=True).as_json())


SCENARIOS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(imported, three_loops, forked, inherited, removed, reloaded),
        *(hooked, run, without_a_seam, examined),
    )
}


def main(arguments: list[str]) -> None:
    adapter_named, name, given = arguments
    given = json.loads(given)
    adapter = load(adapter_named)(Path(given.pop("place")))
    print("result:", json.dumps(SCENARIOS[name](adapter, **given)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
