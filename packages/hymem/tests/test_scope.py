"""Only what runs inside a write, while it runs, is a write."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading

from hymem import scope


def test_open_inside_and_closed_after():
    assert scope.current() is None
    with scope.writing("a.site") as opened:
        assert scope.current() is opened
        with scope.writing("inner"):
            assert scope.current().site == "inner"
        assert scope.current() is opened
    assert scope.current() is None
    assert not opened.open


def test_a_thread_that_inherited_the_context_reads_a_closed_scope():
    with scope.writing("a.site"):
        context = contextvars.copy_context()
        assert context.run(scope.current) is not None
    found = []
    thread = threading.Thread(target=lambda: found.append(context.run(scope.current)))
    thread.start()
    thread.join()
    assert found == [None]


async def test_a_task_that_outlives_the_write_reads_a_closed_scope():
    async def later():
        await asyncio.sleep(0.01)
        return scope.current()

    with scope.writing("a.site"):
        task = asyncio.ensure_future(later())
        assert await asyncio.to_thread(lambda: scope.current().site) == "a.site"
    assert await task is None


def test_a_pool_thread_is_inside_the_scope_that_its_work_was_given_in():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with scope.writing("a.site") as opened:
            assert pool.submit(scope.carried(scope.current)).result() is opened
            assert pool.submit(scope.current).result() is None  # the thread is as it was
            later = scope.carried(scope.current)
        assert pool.submit(later).result() is None
    assert scope.carried(scope.current) is scope.current
