"""What LlamaIndex's parser of facts accepts, and what of a reply is made into it.

It finds `<fact>...</fact>` by a pattern, in whatever stands around it, and nothing else: a reply in JSON,
with attributes or in upper case has no facts for it, one in a thought or a comment has.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from hymem.contract import (
    FREE_TEXT,
    MAX_TEXT,
    CallFacts,
    Contract,
    Parsed,
    RawReply,
    Reading,
    Violation,
    checked_items,
    list_schema,
    text_item,
)
from hymem.decode import JSON, Decoded, Undecodable, cleaned, decode, salvage, without_thoughts
from hymem.errors import WriteError

KEYS = ("facts", "memories", "memory", "fact")
PLACEHOLDERS = frozenset({"Specific fact 1", "Specific fact 2"})
"""Of the example in the prompt, which a model may echo."""

_TAG = re.compile(r"<(?P<closes>/?)fact(?:\s[^<>]{0,200})?>|(?P<list></facts\s*>)", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
"""What is escaped in XML. HTML knows more, without a semicolon too, and finds them in addresses."""
_NONE = re.compile(r"<facts(?:\s[^<>]{0,200})?(?:/>|>\s*</facts\s*>)", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s+(?=\S)")


@dataclass
class Known:
    """What stands in a scope's `facts`: of the calls inside, in their order; and what became of them."""

    calls: list[CallFacts | Callable[[], CallFacts]] = field(default_factory=list)
    asked: bool = False
    skipped: WriteError | None = None
    """Why an extraction, or a summary, was skipped."""
    extracted: bool = False
    """Whether the facts of the messages are had, so that the messages need not be offered again."""


@dataclass(frozen=True)
class Facts(Contract[list[str]]):
    """`<facts><fact>...</fact></facts>`, or the same in JSON, to whose schema a server can be held.

    whole_list   the list replaces another, of which a part would be all that is left
    """

    whole_list: bool = False

    def read(self, reply: RawReply, facts: CallFacts) -> Reading[list[str]] | Violation:
        if reply.cut:
            return Violation("$", "a finished reply", "one that was cut")
        return self._read_facts(reply, facts, decode)

    def salvage(self, reply: RawReply, facts: CallFacts) -> Reading[list[str]] | Violation:
        if self.whole_list and reply.cut:
            return Violation("$", "the whole of the list", "a part of it")
        return self._read_facts(reply, facts, salvage)

    def _read_facts(
        self, reply: RawReply, facts: CallFacts, read: Callable[..., Decoded | Undecodable]
    ) -> Reading[list[str]] | Violation:
        text, unclosed = without_thoughts(reply.text)
        clean = cleaned(text)
        if not clean.strip():
            return Violation(
                "$", "facts", "a think block that is not closed" if unclosed else "an empty reply"
            )
        bare = _without_comments(clean)
        found, cut = _between_tags(bare)
        if cut and (self.whole_list or read is decode or not found):
            return Violation("$", "a fact that is ended", "one that is not")
        if found:
            value: JSON = found
        elif _NONE.search(bare):
            value = []
        elif (bullets := _bullets(bare)) is not None:
            if len(bullets) == 1 and read is decode and not _says_none(bullets[0]):
                return Violation("$", "facts between <fact> and </fact>", "one line that may be an answer")
            value = bullets
        else:
            decoded = read(clean, self.keys)
            if isinstance(decoded, Undecodable):
                return Violation("$", "facts between <fact> and </fact>", "none")
            value, cut = decoded.value, decoded.cut
        parsed = self.check(value, facts)
        if isinstance(parsed, Violation):
            return parsed
        if self.whole_list and (parsed.dropped or cut):
            return Violation("$", "the whole of the list", "a part of it")
        rendered = self.render(parsed.value)
        same = _as_upstream(reply.text) == parsed.value
        steps = frozenset() if same else frozenset({"normalised"})
        return Reading(parsed.value, rendered, parsed.kept, parsed.dropped + cut, steps)


def _as_upstream(text: str) -> list[str]:
    """What LlamaIndex's own pattern finds, which takes the square of its time on tags that are not closed."""
    found = []
    at = text.find("<fact>")
    while at >= 0 and (end := text.find("</fact>", at)) >= 0:
        found.append(text[at + len("<fact>") : end].strip())
        at = text.find("<fact>", end)
    return [each for each in found if each]


def _without_comments(text: str) -> str:
    left, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin)) >= 0:
        left.append(text[at:begin])
        at = end + len("-->")
    return "".join([*left, text[at:]])


def _between_tags(text: str) -> tuple[list[str], int]:
    """What stands between tags, and how many were begun and never ended. A fact ends where the next begins,
    too, and where the list does."""
    found: list[str] = []
    began: int | None = None
    for tag in _TAG.finditer(text):
        if began is not None:
            found.append(text[began : tag.start()])
        began = None if tag["closes"] or tag["list"] else tag.end()
    named = [_ENTITY.sub(lambda entity: html.unescape(entity[0]), each).strip() for each in found]
    return [each for each in named if each], int(began is not None)


def _bullets(text: str) -> list[str] | None:
    """A reply that is nothing but a list."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not all(_BULLET.match(line) for line in lines):
        return None
    return [_BULLET.sub("", line).strip() for line in lines]


def _checked(value: JSON, facts: CallFacts) -> Parsed[list[str]] | Violation:
    parsed = checked_items(value, KEYS, text_item)
    if isinstance(parsed, Violation):
        return parsed
    kept = [each for each in dict.fromkeys(map(str.strip, parsed.value)) if each not in PLACEHOLDERS]
    if parsed.value and not kept:
        return Violation("facts[0]", "a fact", "the example of the prompt")
    if len(kept) == 1 and _says_none(kept[0]):
        kept = []
    return Parsed(kept, len(kept), parsed.dropped)


_NOTHING = re.compile(
    r"(?:none|n/?a|nothing|no (?:new |relevant |specific )?(?:facts?|information|details?)"
    r"(?: (?:found|to (?:add|extract)|mentioned))?)[.!]?"
    r"|(?:i (?:could|can|did|do) ?n[o'\u2019]t|there (?:is|are|were|was) no)\b[^.]{0,80}"
    r"\b(?:facts?|information|memories)\b[^.]{0,80}\.?",
    re.IGNORECASE,
)


def _says_none(text: str) -> bool:
    """Whether what stands in the place of the only fact says that there is none."""
    return _NOTHING.fullmatch(text.strip()) is not None


def _whole(value: JSON, facts: CallFacts) -> Parsed[list[str]] | Violation:
    """The list replaces the one before: one without a fact would wipe it, one that a server has closed at
    the schema's bound has lost some."""
    parsed = _checked(value, facts)
    if isinstance(parsed, Parsed) and not parsed.value:
        return Violation("facts", "the facts there are, condensed", "none")
    if isinstance(parsed, Parsed) and len(parsed.value) >= MOST_FACTS:
        return Violation("facts", f"fewer than {MOST_FACTS} facts", "as many as a reply may have")
    return parsed


def render(facts: list[str]) -> str:
    """As upstream's pattern takes it: it does not unescape."""
    lines = "".join(f"  <fact>{_TAG.sub('', each)}</fact>\n" for each in facts)
    return f"<facts>\n{lines}</facts>" if facts else "<facts></facts>"


MOST_FACTS = 512
"""That a server is asked for. A block condenses past `max_facts`, which is 50 where nobody says otherwise."""
_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
_SCHEMA = {
    **list_schema("facts", _TEXT),
    "properties": {"facts": {"type": "array", "items": _TEXT, "maxItems": MOST_FACTS}},
}

FACTS: Contract[list[str]] = Facts(
    name="facts",
    schema=_SCHEMA,
    keys=KEYS,
    check=_checked,
    render=render,
    unchanged=lambda facts: render([]),
)
"""New facts of some messages; none is an answer."""


CONDENSED: Contract[list[str]] = Facts(
    name="condensed",
    whole_list=True,
    schema=_SCHEMA,
    keys=KEYS,
    check=_whole,
    render=render,
    unchanged=lambda facts: render(list(facts.offered.values())),
)
"""All facts there are, in fewer words."""


def _text(value: JSON, facts: CallFacts) -> Parsed[str]:
    return Parsed(value, kept=1)


HISTORY: Contract[str] = Contract(
    name="history", schema=None, keys=(), check=_text, render=str, unchanged=lambda facts: ""
)
"""The summary that older turns are replaced with. Empty: they stay, see `seams`."""

TEXT = FREE_TEXT
"""What is asked of the model by a caller that no catalogue knows: text that is whole."""
