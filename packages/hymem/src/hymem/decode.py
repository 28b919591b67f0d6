"""The text of a reply → JSON, or what is wrong with it. Pure, bounded, and never by guessing.

`decode` takes what is plainly there: the whole text as JSON, or the one object with an expected
key in the midst of fences, prose and think blocks. `salvage` is for a reply that nothing better
came of: the complete items of a cut list, and only then json-repair. What it returns says how
much of it was a guess, so that a contract can refuse to delete or overwrite on one.

Every bound is in characters and calls, not in seconds: `Work` counts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_CHARS = 1 << 20
MAX_DEPTH = 64
MAX_DIGITS = 300
MAX_REPAIR_CHARS = 16 * 1024
"""json-repair is superlinear: 16 KiB of unescaped quotes take over a second (0.64.6)."""
MAX_SCANNED_CHARS = 8 << 20
MAX_FAILED_SCANS = 256
"""Braces in prose that turned out not to begin JSON. Each costs a look at what comes before it."""

JSON = Any


@dataclass(slots=True)
class Work:
    """How much parsing one reply has cost."""

    scans: int = 0
    failed_scans: int = 0
    scanned_chars: int = 0
    repaired_chars: int = 0

    def take(self, chars: int) -> None:
        self.scans += 1
        self.scanned_chars += chars

    @property
    def exhausted(self) -> bool:
        return self.scanned_chars > MAX_SCANNED_CHARS or self.failed_scans > MAX_FAILED_SCANS


@dataclass(slots=True)  # not frozen: made for each reply, and that would cost five times as much
class Decoded:
    """JSON out of a reply.

    `as_sent`: the whole text is that JSON, and any strict parser reads it the same. `repaired`:
    text had to be mended, or lone surrogates and NULs taken out of strings. `cut`: a tail is
    missing. `guessed`: the text had to be mended, or does not plainly begin with this value.
    """

    value: JSON
    as_sent: bool = False
    repaired: bool = False
    cut: bool = False
    guessed: bool = False
    work: Work = field(default_factory=Work, compare=False)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """No JSON to be had. `reason` names the shape of the trouble, never the text."""

    reason: str
    work: Work = field(default_factory=Work, compare=False)


def decode(text: str, keys: Sequence[str] = ()) -> Decoded | Undecodable:
    """The JSON value that `text` is, or the one object with a key of `keys` that stands in it."""
    work = Work()
    if len(text) > MAX_CHARS:
        return Undecodable(f"a reply of {len(text)} characters, over the bound of {MAX_CHARS}", work=work)
    work.take(len(text))
    try:
        value = _parse_whole(text)
    except (ValueError, RecursionError):
        return _find(text, keys, work)
    if isinstance(value, str) and keys:  # JSON inside a JSON string
        return _find(value, keys, work)
    inner = _unwrap(value, keys)
    return _finish(inner, text, work, as_sent=inner is value)


def salvage(text: str, keys: Sequence[str] = ()) -> Decoded | Undecodable:
    """What can still be had from a `text` that `decode` gave up."""
    work = Work()
    if len(text) > MAX_CHARS:
        return Undecodable(f"a reply of {len(text)} characters, over the bound of {MAX_CHARS}", work=work)
    body, unclosed = _outside_thoughts(text)
    found = _complete_items(body, keys, work)
    if found is None:
        found = _mend(body, work)
    if isinstance(found, Undecodable):
        return found
    finished = _finish(_unwrap(found.value, keys), body, work, as_sent=False)
    if isinstance(finished, Undecodable):
        return finished
    return Decoded(
        finished.value,
        repaired=found.repaired or finished.repaired,
        cut=found.cut,
        guessed=found.guessed or unclosed,
        work=work,
    )


def without_thoughts(text: str) -> tuple[str, bool]:
    """Free text without the model's think block in front, and whether that block was left open.

    Only what stands in front is taken away; a think tag further on is part of the text.
    """
    stripped = text.lstrip("\ufeff \t\r\n")
    if opening := _OPEN.match(stripped):
        closing = _CLOSE.search(stripped, opening.end())
        return ("", True) if closing is None else (stripped[closing.end() :].lstrip(), False)
    orphan = _CLOSE.search(stripped)
    if orphan and not _OPEN.search(stripped, 0, orphan.start()):
        return stripped[orphan.end() :].lstrip(), False
    return text, False


# -- strict parsing ------------------------------------------------------------------------------


class _Refused(ValueError):
    """JSON that a strict parser takes, but that is not safe to hand on."""


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Refused("an integer of too many digits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if number - number != 0:  # overflowed to infinity
        raise _Refused("a number past what a float holds")
    return number


def _constant(name: str) -> float:
    raise _Refused(f"{name}, which is not JSON")


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    made = dict(pairs)
    if len(made) != len(pairs) and any(made[key] != value for key, value in pairs):
        raise _Refused("an object with two values for one key")
    return made


def _decoder(*, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_int=_integer,
        parse_float=_float,
        parse_constant=_constant,
        object_pairs_hook=_object,
        strict=strict,
    )


_STRICT = _decoder(strict=True)
_LENIENT = _decoder(strict=False)  # raw newlines inside strings

# One token a match, and an unclosed string runs to the end of the text: nothing is scanned twice.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:(?P<closed>")|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def _may_be_deep(text: str) -> bool:
    return text.count("{") + text.count("[") > MAX_DEPTH


def _refuse_depth(text: str, start: int) -> int:
    """Raise before a parser that recurses sees nesting past the bound; where the value ends."""
    depth, end = 0, start
    for token in _TOKEN.finditer(text, start):
        first, end = token.group()[0], token.end()
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _Refused(f"nesting deeper than {MAX_DEPTH}")
        elif first in "]}":
            depth -= 1
            if depth <= 0:
                break
    return end


def _parse_whole(text: str) -> JSON:
    if _may_be_deep(text):
        _refuse_depth(text, 0)
    return _STRICT.decode(text)


# -- cleaning ------------------------------------------------------------------------------------

_DIRTY = re.compile("[\x00\ud800-\udfff]")


def _is_dirty(text: str) -> bool:
    return "\0" in text or (not text.isascii() and _DIRTY.search(text) is not None)


def cleaned(value: JSON) -> JSON:
    """`value` without lone surrogates and NULs in its strings, which stores and encoders die on."""
    return _cleaned(value)[0]


def _cleaned(value: JSON) -> tuple[JSON, bool]:
    if isinstance(value, str):
        return (_DIRTY.sub("", value), True) if _is_dirty(value) else (value, False)
    if isinstance(value, list):
        items = [_cleaned(each) for each in value]
        changed = any(dirty for _, dirty in items)
        return ([each for each, _ in items] if changed else value), changed
    if isinstance(value, dict):
        pairs = [(_cleaned(key), _cleaned(each)) for key, each in value.items()]
        changed = any(key[1] or each[1] for key, each in pairs)
        return ({key[0]: each[0] for key, each in pairs} if changed else value), changed
    return value, False


def _finish(value: JSON, text: str, work: Work, *, as_sent: bool) -> Decoded | Undecodable:
    dirty = False
    # A dirty string can come from an escape or, through the envelope's own escapes, raw.
    if "\\" in text or _is_dirty(text):
        value, dirty = _cleaned(value)
    return Decoded(value, as_sent=as_sent and not dirty, repaired=dirty, work=work)


# -- finding the object --------------------------------------------------------------------------

_THINK = r"think(?::[^<>\s]{1,64})?"  # the tag may carry a suffix: <think:opensource>
_OPEN = re.compile(f"<{_THINK}>")
_CLOSE = re.compile(f"</{_THINK}>")
_MARK = re.compile(f"(?P<open><{_THINK}>)|(?P<close></{_THINK}>)|[\\[{{]")
_LOOKS_LIKE_JSON = re.compile(r'\{\s*(?:"|\})|\[\s*(?:["{\[]|\])')


def _has_key(value: JSON, keys: Sequence[str]) -> bool:
    return isinstance(value, dict) and any(key in value for key in keys)


def _unwrap(value: JSON, keys: Sequence[str]) -> JSON:
    """The object with the expected key where it stands alone inside a list or another object."""
    if _has_key(value, keys):
        return value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    fits = [each for each in inside if _has_key(each, keys)]
    return fits[0] if len(fits) == 1 and len(inside) == 1 else value


def _find(text: str, keys: Sequence[str], work: Work) -> Decoded | Undecodable:
    objects: list[JSON] = []
    others: list[JSON] = []
    deep = _may_be_deep(text)
    position = 0
    while mark := _MARK.search(text, position):
        if mark["open"]:
            closing = _CLOSE.search(text, mark.end())
            if closing is None:
                return Undecodable("a think block that is not closed", work=work)
            position = closing.end()
        elif mark["close"]:  # its opening tag was in the prompt: all before it is thought
            objects.clear()
            others.clear()
            position = mark.end()
        else:
            try:
                value, position = _value_at(text, mark.start(), work, deep=deep)
            except (ValueError, RecursionError) as error:
                work.failed_scans += 1
                if work.exhausted:
                    return Undecodable("more braces than are looked into", work=work)
                if _LOOKS_LIKE_JSON.match(text, mark.start()):
                    # What stands inside a broken object is not looked at: it may be a quotation.
                    reason = str(error) if isinstance(error, _Refused) else "JSON that is broken or cut"
                    return Undecodable(reason, work=work)
                position = mark.end()
                continue
            inner = _unwrap(value, keys)
            (objects if _has_key(inner, keys) else others).append(inner)
    return _choose(objects or others, text, work)


def _choose(found: list[JSON], text: str, work: Work) -> Decoded | Undecodable:
    if not found:
        return Undecodable("no JSON", work=work)
    if any(each != found[0] for each in found[1:]):
        return Undecodable(f"{len(found)} JSON values that could be meant", work=work)
    return _finish(found[0], text, work, as_sent=False)


def _value_at(text: str, start: int, work: Work, *, deep: bool) -> tuple[JSON, int]:
    if deep and text[start : start + 1] in ("{", "["):
        work.scanned_chars += _refuse_depth(text, start) - start
    end = len(text)
    try:
        value, end = _LENIENT.raw_decode(text, start)
        return value, end
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Unterminated"):  # then `pos` is where the string began
            end = error.pos + 1
        raise
    finally:
        work.take(end - start)


# -- salvage -------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_LIST_ALONE = re.compile(r"()\s*(?:```\w*\s*)?\[")
_BEGINS_PLAINLY = re.compile(r"\s*(?:```\w*\s*)?(?:\{|\Z)")


def _outside_thoughts(text: str) -> tuple[str, bool]:
    """What follows the last think block; of one left open, what follows its opening tag."""
    closings = list(_CLOSE.finditer(text))
    rest = text[closings[-1].end() :] if closings else text
    first = rest.find("{")
    opening = _OPEN.search(rest, 0, first if first >= 0 else len(rest))
    return (rest[opening.end() :], True) if opening else (rest, False)


def _complete_items(text: str, keys: Sequence[str], work: Work) -> Decoded | Undecodable | None:
    """The items of the expected list that are whole; None where the list is not merely cut."""
    if not keys:
        return None
    starts = re.compile(r'"(' + "|".join(map(re.escape, keys)) + r')"\s*:\s*\[')
    begin = starts.search(text) or _LIST_ALONE.match(text)
    if begin is None:
        return None
    if starts.search(text, begin.end()):
        return Undecodable("several lists that could be meant", work=work)
    # Of a reply that only breaks off, the items before the break are as the model meant them.
    # Anything else that is broken is read as well as can be, but not to overwrite by it.
    plain = _BEGINS_PLAINLY.match(text, 0, begin.start()) is not None
    deep = _may_be_deep(text)
    key = begin[1] or keys[0]
    items: list[JSON] = []
    position = begin.end()
    while True:
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]  # matches the empty string
        if text[position : position + 1] == "]":
            return Decoded({key: items}, repaired=True, guessed=True)
        try:
            item, position = _value_at(text, position, work, deep=deep)
        except json.JSONDecodeError:
            if not _runs_out(text, position, depth=1):
                return None
            if not items:
                return Undecodable("a list cut in its first item", work=work)
            return Decoded({key: items}, cut=True, guessed=not plain)
        except (ValueError, RecursionError) as error:
            return Undecodable(str(error), work=work)
        items.append(item)
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        if text[position : position + 1] == ",":
            position += 1
        elif position >= len(text):
            whole = items[:-1] if isinstance(items[-1], (int, float)) else items  # 12 may be of 123
            return Decoded({key: whole}, cut=True, guessed=not plain)
        elif text[position] != "]":
            return None


def _runs_out(text: str, start: int, depth: int) -> bool:
    """Whether what is open at `start`, `depth` brackets of it, is never closed: the text was cut."""
    for token in _TOKEN.finditer(text, start):
        first = token.group()[0]
        if first == '"' and not token["closed"]:
            return True
        depth += (first in "[{") - (first in "]}")
        if depth <= 0 and first in "]}":
            return False
    return True


def _mend(text: str, work: Work) -> Decoded | Undecodable:
    import json_repair  # only ever needed here, and not cheap to import

    brackets = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    if not brackets:
        return Undecodable("no JSON", work=work)
    body = text[min(brackets) :]
    if len(body) > MAX_REPAIR_CHARS:
        return Undecodable(f"broken JSON, too long to mend ({len(body)} characters)", work=work)
    if _runs_out(body, 0, depth=0):
        return Undecodable("JSON that is cut", work=work)  # mending would make half a text whole
    if _may_be_deep(body):
        try:
            _refuse_depth(body, 0)
        except _Refused as error:
            return Undecodable(str(error), work=work)
    work.repaired_chars += len(body)
    try:
        # Through our own strict parser again: json-repair lets NaN and long integers pass.
        value = _parse_whole(json.dumps(json_repair.loads(body, skip_json_loads=True)))
    except Exception as error:  # whatever a third-party parser raises on rubbish is no JSON
        return Undecodable(f"JSON that cannot be mended ({type(error).__name__})", work=work)
    if not value or not isinstance(value, dict if body[0] == "{" else list):
        return Undecodable("no JSON", work=work)
    return Decoded(value, repaired=True, guessed=True)
