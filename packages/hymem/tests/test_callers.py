from __future__ import annotations

import functools

import pytest

from hymem.callers import Callers
from hymem.integration import CallSite

WRITE = CallSite("toy.write", side="write", where=(f"{__name__}:Memory.extract", f"{__name__}:helper"))
READ = CallSite("toy.read", side="read", where=(f"{__name__}:answer",))
CALLERS = Callers([WRITE, READ], through=("generate", "wrapper"))


def ask():
    return CALLERS.find()


def wrapped(function):
    @functools.wraps(function)
    def wrapper():
        return function()

    return wrapper


@wrapped
def generate():
    return ask()


class Memory:
    def extract(self):
        listed, made = [ask() for _ in range(2)], list(ask() for _ in range(1))  # noqa: C400
        return listed, made, {each: ask() for each in "a"}, generate()


def answer():
    return ask()


def helper():
    def inner():
        return ask()

    return inner(), ask()


def test_the_function_that_asks_says_which_call_site_it_is():
    assert Memory().extract() == ([WRITE, WRITE], [WRITE], {"a": WRITE}, WRITE)
    assert answer() is READ
    assert helper() == (None, WRITE)  # a function inside another is not that one
    assert ask() is None
    assert generate() is None


def test_one_function_cannot_be_two_call_sites():
    other = CallSite("toy.other", side="read", where=(f"{__name__}:answer",))
    with pytest.raises(ValueError, match=r"toy\.other and toy\.read"):
        Callers([READ, other])
