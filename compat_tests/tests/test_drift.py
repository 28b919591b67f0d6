"""The installed framework is the one that its integration was written for."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from pathlib import Path

import pytest

from hymem.frameworks import discover
from hymem_testing.conformance.stage import renamed

sys.path.insert(0, str(Path(__file__).parents[1]))
import drift

BASELINES = Path(__file__).parents[1] / "drift"


INSTALLED = sorted(discover()) or [
    pytest.param("", marks=pytest.mark.skip("no integration is installed here"))
]


def of(framework):
    """The switches of an integration, and all the places of the framework that it relies on."""
    seams = importlib.import_module(f"{discover()[framework]}.seams")
    where = {place for site in seams.INTEGRATION.call_sites for place in site.where}
    changed = {patch.place.name for patch in seams.INTEGRATION.patches()}
    places = where | changed | set(seams.WATCHED)
    return seams.INTEGRATION, {place for place in places if not place.startswith("hymem_")}


@pytest.mark.hymem_short
@pytest.mark.hymem_recorded
@pytest.mark.parametrize("framework", INSTALLED)
def test_nothing_has_drifted(framework):
    """A difference is looked at by somebody, who then records it with `./dev tables`."""
    switches, places = of(framework)
    where = {place for site in switches.call_sites for place in site.where}
    distribution = drift.VERSION_OF.get(framework, switches.framework.distribution)
    version = importlib.metadata.version(distribution)
    now = drift.measure(framework, places)
    assert drift.uncatalogued(now, where) == []
    baseline = BASELINES / f"{framework}-{version}.json"
    was = json.loads(baseline.read_text(encoding="utf-8")) if baseline.is_file() else None
    record = os.environ.get("HYMEM_TEST_RECORD")  # "all", or "new": where there is none yet
    missing = was is None or not now["packages"].keys() <= was["packages"].keys()
    if record == "all" or (record == "new" and missing):
        BASELINES.mkdir(exist_ok=True)
        was = now if was is None or record == "all" else drift.together(was, now)
        baseline.write_text(json.dumps(was, indent=1) + "\n", encoding="utf-8")
    assert was is not None, f"{baseline.name} is not there; ./dev tables records it"
    assert drift.differences(drift.here(was), drift.here(now)) == []


@pytest.mark.hymem_short
@pytest.mark.parametrize("framework", INSTALLED)
def test_a_renamed_seam_is_drift(framework, tmp_path, monkeypatch):
    """In a copy of the framework, as `conformance` has it for enabling, the hook and the doctor."""
    switches, places = of(framework)
    was = drift.measure(framework, places)
    needed = (patch.place for patch in switches.patches() if patch.needed)
    place = next(place for place in needed if hasattr(place, "owner"))
    module = place.name.partition(":")[0]
    monkeypatch.syspath_prepend(renamed(module, place.attribute, tmp_path / "renamed"))
    monkeypatch.delitem(sys.modules, module.partition(".")[0])  # or that would be found
    now = drift.measure(framework, places)
    assert any(place.attribute in line for line in drift.differences(was, now))


# -- that it would be noticed --------------------------------------------------------------------

BASE = """
class LLMBase:
    def generate_response(self, messages): ...
    def close(self): ...
"""
MAIN = """
import asyncio

class Memory:
    def add(self, text):
        \"\"\"Docs.\"\"\"
        return self.llm.generate_response(messages=[text])

    async def aadd(self, text):
        return await asyncio.to_thread(self.llm.generate_response, [text])
"""
PROVIDER = "def ask(client): return client.chat.completions.create()\n"
RULE = drift.Rule("drifting", base="drifting.llm.base:LLMBase", providers="llm/")
PLACES = {"drifting.main:Memory.add", "drifting.main:Memory.aadd"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as it was; call the fixture to change a file of it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(drift.RULES, "drifting", (RULE,))
    for name, text in {
        "__init__": "",
        "llm/__init__": "",
        "llm/base": BASE,
        "main": MAIN,
        "llm/x": PROVIDER,
    }.items():
        path = tmp_path / "drifting" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    was = drift.measure("drifting", PLACES)
    assert drift.uncatalogued(was, PLACES) == []

    def change(name, old, new):
        path = tmp_path / "drifting" / f"{name}.py"
        path.write_text((path.read_text() if path.exists() else "").replace(old, new) if old else new)
        now = drift.measure("drifting", PLACES)
        return drift.differences(was, now) + drift.uncatalogued(now, PLACES)

    return change


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("more", "", "def f(llm): return llm.generate_response([])", "drifting.more:f"),
        (
            "main",
            "self.llm.generate_response(messages=[text])",
            "text",
            "Memory.add generate_response: was 1",
        ),
        ("main", "messages=[text]", "messages=[text], top_k=1", "functions / drifting.main:Memory.add"),
        ("main", "class Memory", "class Memories", "functions / drifting.main:Memory.add: was"),
        ("llm/base", "def close", "def stream(self, prompt): ...\n    def close", "methods / stream"),
        (
            "main",
            "return self.llm",
            "import litellm; litellm.completion(); return self.llm",
            "past the LLM / main.py",
        ),
    ],
)
def test_what_has_changed_is_named(package, name, old, new, said):
    assert any(said in line for line in package(name, old, new))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("def f(a, b, c): ...", "def f(a, b, *, c): ..."),
        ("def f(a, b): ...", "def f(a, *b): ..."),
        ("def f(x): return x[:10]", "def f(x): return x[10:]"),
        (
            "def f():\n try: x()\n except E: z()\n else: y()",
            "def f():\n try: x()\n except E: z()\n finally: y()",
        ),
        ("def f():\n if a: b()\n else: c(); d()", "def f():\n if a: b(); c()\n else: d()"),
        ("def f(): return None", "def f(): return ..."),
        ("f = {'a': 1}", "f = {'a': 2}"),
    ],
)
def test_every_change_of_code_changes_its_digest(tmp_path, monkeypatch, was, now):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "digested").mkdir()
    digests = set()
    for code in (was, now):
        (tmp_path / "digested" / "__init__.py").write_text(code)
        (tmp_path / "digested" / "user.py").write_text("from digested import f")
        digests |= {drift.digest_of("digested:f"), drift.digest_of("digested.user:f")}
    assert len(digests) == 2
    assert None not in digests


def test_comments_and_docstrings_may_change(package):
    assert package("main", "Docs.", "Other docs.") == []
    assert package("main", "        return self", "        # why\n        return self") == []


def test_a_file_that_cannot_be_parsed_is_not_passed_over(package):
    with pytest.raises(drift.Unreadable, match=r"more\.py"):
        package("more", "", "def generate_response(:")


def test_a_base_class_that_has_gone_is_not_passed_over(package):
    with pytest.raises(LookupError, match="LLMBase"):
        package("llm/base", "class LLMBase", "class Base")
