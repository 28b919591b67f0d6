"""What the doctor says of Mem0: installed as it is, and damaged."""

from __future__ import annotations

import json

import pytest
from adapter import Mem0
from mem0_bank import ADDITIVE, SITES

from hymem_testing.conformance import USERS_KEY
from hymem_testing.double import Double
from hymem_testing.environment import Environment

MAIN = "memory/main.py"
DETOUR = """
for _owner in (Memory, AsyncMemory):
    _owner._store_by_detour = _owner._add_to_vector_store
"""


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "environment")


@pytest.fixture
def scripted(hymem_writer, tmp_path):
    """A writer that knows what to say of the doctor's sentence."""
    Mem0(tmp_path).script(hymem_writer, ["Drinks green tea in the morning"], said="green tea")
    return hymem_writer


def doctor(environment, *arguments, **environ):
    done = environment.run("-m", "hymem", "doctor", "mem0", "--json", *arguments, **environ)
    report = json.loads(done.stdout)
    assert done.returncode == report["exit"]
    return report, {each["code"]: each for each in report["findings"]}


@pytest.mark.hymem_short
def test_all_is_well_and_the_route_is_shown(environment, scripted):
    report, found = doctor(environment, "--probe", HYMEM_BASE_URL=scripted.base_url)
    assert report["exit"] < 2
    assert set(found) <= {"window-tight"}
    facts = [fact for fact in report["facts"]["mem0"] if fact.startswith("route: ")]
    outcomes = ", ".join(f"{site}: ok" for site in SITES)
    assert facts == [
        f"route: Memory.add reaches the writer ({outcomes})",
        f"route: AsyncMemory.add reaches the writer ({outcomes})",
        "route: procedural memory reaches the writer (mem0.procedural: ok)",
        "route: what is no write reaches the main model",
    ]
    assert not any("What do I drink" in sent.text for sent in scripted.chats)


def test_windows(environment):
    """Mem0 2's prompt does not fit into a window that is large enough for the versions before."""
    with Double(max_model_len=4096) as small, Double(max_model_len=10_000) as tight:
        _, found = doctor(environment, HYMEM_BASE_URL=small.base_url)
        _, other = doctor(environment, "--base-url", tight.base_url)
    if ADDITIVE:
        assert "--max-model-len" in found["window-small"]["todo"]
        assert "mem0.extract_additive" in found["window-small"]["found"]
        assert other["window-tight"]["level"] == "warning"
    else:
        assert found["window-tight"]["about"] == "mem0"
        assert other == {}


def test_a_seam_that_is_there_and_never_called(environment, scripted):
    environment.replace("mem0", r"self\._add_to_vector_store\b", "self._store_by_detour", file=MAIN)
    environment.replace("mem0", r"\Z", DETOUR, file=MAIN)
    report, found = doctor(environment, HYMEM_BASE_URL=scripted.base_url)
    assert report["exit"] < 2
    _, found = doctor(environment, "--probe", HYMEM_BASE_URL=scripted.base_url)
    assert "the main model" in found["write-not-routed"]["found"]


def test_a_write_that_fails(environment, hymem_writer):
    hymem_writer.reply(lambda body: "green tea" in str(body), "no JSON, and none again")
    _, found = doctor(environment, "--probe", HYMEM_BASE_URL=hymem_writer.base_url)
    assert SITES[0] in found["write-failed"]["found"]
    assert "write-not-routed" not in found


def test_an_environment_full_of_other_settings(environment, scripted):
    """A dead proxy, and a key that would have Mem0 ask a provider of the user's instead of the stand-in."""
    nowhere = "http://127.0.0.1:9"
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), nowhere)
    others = {"OPENROUTER_API_KEY": USERS_KEY, "OPENROUTER_API_BASE": f"{nowhere}/v1"}
    report, found = doctor(environment, "--probe", HYMEM_BASE_URL=scripted.base_url, **proxies, **others)
    assert set(found) <= {"window-tight"}
    assert USERS_KEY not in str(report)


def test_a_probe_that_cannot_be_made(environment, scripted):
    """Mem0's own client needs a package for this kind of proxy; the rest of the report is still there."""
    socks = dict.fromkeys(("ALL_PROXY", "all_proxy"), "socks5://127.0.0.1:9")
    report, found = doctor(environment, "--probe", HYMEM_BASE_URL=scripted.base_url, **socks)
    assert "ImportError" in found["probe-failed"]["found"]
    assert any("seams are there" in fact for fact in report["facts"]["mem0"])


def test_a_question_that_goes_to_the_writer(environment, scripted):
    """As if hymem took every call for a write."""
    environment.replace(
        "hymem_mem0", r"if opened is None or opened\.owner is not memory or", "if False or", file="seams.py"
    )
    environment.replace(
        "hymem_mem0",
        r"return self\._ask_main\(asked\)\n        off",
        "opened = scope.Scope('mem0.procedural')\n        off",
        file="models.py",
    )
    _, found = doctor(environment, "--probe", HYMEM_BASE_URL=scripted.base_url)
    assert "the writer" in found["read-astray"]["found"]


def test_another_version(environment, hymem_double):
    environment.set_version("mem0ai", "0.1.50")
    _, found = doctor(environment, HYMEM_BASE_URL=hymem_double.base_url)
    assert "0.1.118" in found["too-old"]["found"]
    environment.set_version("mem0ai", "99.0")
    _, found = doctor(environment, HYMEM_BASE_URL=hymem_double.base_url)
    assert "framework-untested" in found


def test_mem0_itself_is_broken(environment, hymem_double):
    environment.replace("mem0", r"\A", "import not_there_at_all\n", file=MAIN)
    _, found = doctor(environment, HYMEM_BASE_URL=hymem_double.base_url)
    assert "not_there_at_all" in found["framework-broken"]["found"]


def test_the_users_own_files_are_left_alone(environment, scripted, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    doctor(environment, "--probe", HYMEM_BASE_URL=scripted.base_url, HOME=str(home))
    assert list(home.iterdir()) == []


def test_call_sites(environment):
    done = environment.run("-m", "hymem", "call-sites", "mem0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mem0.extract_additive  writer" in done.stdout
    assert "mem0.rerank            main model" in done.stdout
    table = json.loads(environment.run("-m", "hymem", "call-sites", "--json").stdout)
    assert {row[1] for rows in table.values() for row in rows} >= {"writer", "main model"}


assert Mem0  # it says where Mem0 may write, before it is imported
