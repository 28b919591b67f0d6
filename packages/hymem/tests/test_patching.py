"""All or nothing, and back by identity."""

from __future__ import annotations

import functools
import importlib
import sys

import pytest

from hymem.errors import SeamMissing
from hymem.patching import Attribute, Code, Entry, Patch, PatchSet, rewrap


def shouting(switch):
    def wrap(original):
        @functools.wraps(original)
        def ours(*args):
            return original(*args).upper() if switch.on else original(*args)

        return ours

    return lambda descriptor: rewrap(descriptor, wrap)


@pytest.fixture
def target():
    class Parent:
        def inherited(self):
            return "inherited"

    class Target(Parent):
        def plain(self):
            return "plain"

        @classmethod
        def of_class(cls):
            return "class"

        @staticmethod
        def static():
            return "static"

    return Target


NAMES = ("plain", "of_class", "static")


def test_methods_of_every_kind_and_their_undo(target):
    before = dict(vars(target))
    patches = PatchSet(lambda on: [Patch(Attribute(target, name), shouting(on)) for name in NAMES])
    patches.apply()
    assert (target().plain(), target.of_class(), target.static()) == ("PLAIN", "CLASS", "STATIC")
    assert all(patches.status().values())
    assert len(patches.status()) == 3
    assert patches.undo() == []
    assert all(vars(target)[name] is before[name] for name in NAMES)


def test_what_was_absent_is_gone_again(target):
    table = {}
    patches = PatchSet(
        lambda on: [
            Patch(Attribute(target, "new"), lambda _: "new", needed=False),
            Patch(Entry(table, "name", "table[name]"), lambda _: "entry", needed=False),
        ]
    )
    patches.apply()
    assert target.new == "new"
    assert table == {"name": "entry"}
    patches.undo()
    assert "new" not in vars(target)
    assert table == {}


def test_a_missing_seam_changes_nothing(target):
    before = dict(vars(target))
    places = [Attribute(target, name) for name in ("plain", "inherited", "nowhere")]
    patches = PatchSet(lambda on: [Patch(place, shouting(on)) for place in places])
    with pytest.raises(SeamMissing) as raised:
        patches.apply()
    assert len(raised.value.missing) == 2
    assert dict(vars(target)) == before
    assert not patches.active


def test_a_failure_in_the_middle_or_at_the_end_is_rolled_back(target):
    before = dict(vars(target))

    def fail(_):
        raise ValueError

    def verify():
        raise ValueError

    first = Patch(Attribute(target, "plain"), lambda original: lambda self: "ours")
    for patches in (
        PatchSet(lambda on: [first, Patch(Attribute(target, "static"), fail)]),
        PatchSet(lambda on: [first], verify),
    ):
        with pytest.raises(ValueError):
            patches.apply()
        assert dict(vars(target)) == before
        assert not patches.active


def test_under_a_later_wrapper_ours_is_inert_and_left(target):
    patches = PatchSet(lambda on: [Patch(Attribute(target, "plain"), shouting(on))])
    patches.apply()
    bound = target().plain
    ours = target.plain
    target.plain = lambda self: "<" + ours(self) + ">"
    assert target().plain() == "<PLAIN>"
    (left,) = patches.undo()
    assert "plain" in left.name
    assert target().plain() == "<plain>"
    assert bound() == "plain"


def test_status_looks_and_does_not_remember(target):
    patches = PatchSet(lambda on: [Patch(Attribute(target, "plain"), shouting(on))])
    patches.apply()
    target.plain = lambda self: "reloaded"
    assert list(patches.status().values()) == [False]


def test_a_code_object_and_back():
    def original():
        return 1

    def other():
        return 2

    code = original.__code__
    patches = PatchSet(lambda on: [Patch(Code(original, "original"), lambda _: other.__code__)])
    patches.apply()
    assert original() == 2
    patches.undo()
    assert original.__code__ is code


def test_applying_twice_is_applying_once(target):
    patches = PatchSet(lambda on: [Patch(Attribute(target, "plain"), shouting(on))])
    patches.apply()
    patches.apply()
    assert target().plain() == "PLAIN"
    patches.undo()
    assert target().plain() == "plain"
    assert patches.undo() == []


def test_a_module_that_was_imported_anew_is_not_the_one_that_was_patched(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "patched_module.py").write_text("def ask(): ...")
    module = importlib.import_module("patched_module")
    patches = PatchSet(lambda on: [Patch(Attribute(module, "ask"), lambda _: print)])
    patches.apply()
    assert patches.status() == {"patched_module:ask": True}
    monkeypatch.delitem(sys.modules, "patched_module")
    importlib.import_module("patched_module")
    assert patches.status() == {"patched_module:ask": False}
