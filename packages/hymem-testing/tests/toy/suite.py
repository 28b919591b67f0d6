"""The suite on the toy; right, unless `TOYNOTES_WRONG` says how it is wrong."""

from adapter import Toynotes

from hymem_testing.conformance import Conformance


class TestToynotes(Conformance):
    adapter = Toynotes
