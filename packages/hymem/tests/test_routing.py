import gc

from hymem.routing import Waiting


class Bank:
    pass


def test_what_waits_is_kept_beside_what_another_write_has_kept():
    waiting, bank = Waiting(), Bank()
    waiting.keep(bank, ["one"])
    waiting.keep(bank, ["two"])
    assert waiting.take(bank) == ["one", "two"]
    assert waiting.take(bank) == []


def test_what_waits_goes_with_its_object():
    waiting, bank = Waiting(), Bank()
    waiting.keep(bank, ["one"])
    del bank
    gc.collect()
    assert not waiting._kept
