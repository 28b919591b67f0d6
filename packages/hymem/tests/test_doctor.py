"""What the doctor finds out about a server, the start-up hook and this environment; each finding is
produced by breaking something. Those about a framework are in the integrations' tests."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hymem import SettingsError, doctor
from hymem.__main__ import main
from hymem_testing.double import Double
from hymem_testing.environment import Environment
from hymem_testing.http import Body, LocalServer
from hymem_testing.proxy import Dropped, _ask

KEY = "sk-planted"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in list(os.environ):
        if name.startswith("HYMEM_") and not name.startswith("HYMEM_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(doctor, "discover", dict)
    monkeypatch.setattr(doctor, "hook_state", lambda: "running in another test")


@pytest.fixture
def found(capsys, monkeypatch):
    """What the doctor finds, code → finding, with these settings; the facts are in `found.facts`."""

    def examine(base_url, *arguments, **settings):
        monkeypatch.setenv("HYMEM_BASE_URL", base_url)
        for name, value in settings.items():
            monkeypatch.setenv(f"HYMEM_{name.upper()}", value)
        code = main(["doctor", "--json", *arguments])
        printed = capsys.readouterr().out
        assert KEY not in printed
        report = json.loads(printed)
        assert report["exit"] == code == 2  # there is no integration here
        examine.facts = " ".join(report["facts"].get("writer", ()))
        assert all(each["todo"] for each in report["findings"])
        return {each["code"]: each for each in report["findings"] if each["code"] != "no-integration"}

    return examine


class Gateway(LocalServer):
    """What people put in front of vLLM; it drops fields of requests, and says less than vLLM does."""

    def __init__(self, backend, *, drop=(), missing=(), change=lambda path, found: found):
        super().__init__()
        self.backend, self.drop, self.missing, self.change = backend, drop, missing, change

    def answer(self, method, path, headers, raw):
        path = urlsplit(path).path  # a proxy is sent the whole address
        if path in self.missing:
            return Body({"detail": "Not Found"}, 404)
        if path.endswith("/chat/completions"):
            body = {name: value for name, value in json.loads(raw).items() if name not in self.drop}
            raw = json.dumps(body).encode()
        answer = _ask(self.backend, method, path, headers, raw)
        if answer.status == 200:
            answer.data = json.dumps(self.change(path, json.loads(answer.data))).encode()
        return answer


class Answering(LocalServer):
    """The same to every request, or by path."""

    def __init__(self, answer, **by_path):
        super().__init__()
        self.always, self.by_path = answer, by_path

    def answer(self, method, path, headers, raw):
        return self.by_path.get(path, self.always)


# -- the server ----------------------------------------------------------------------------------


@pytest.mark.hymem_real
def test_all_is_well(found, hymem_writer):
    assert found(hymem_writer.base_url) == {}
    assert "no_think is heeded" in found.facts
    assert "structured output is heeded" in found.facts
    assert "HYMEM_BASE_URL" in found.facts
    for sent in hymem_writer.chats[:1]:
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}


def test_server_down(found):
    assert "vllm serve" in found("http://127.0.0.1:1/v1")["server-down"]["todo"]


def test_server_not_ready(found):
    with Answering(Dropped()) as server:
        assert set(found(server.base_url)) == {"server-not-ready"}
    with Answering(Body({"detail": "loading"}, 503)) as server:
        assert "HTTP 503" in found(server.base_url)["server-not-ready"]["found"]


def test_a_server_that_speaks_no_tls(found, hymem_double):
    found_ = found(f"{hymem_double.url}/v1".replace("http:", "https:"))
    assert "TLS" in found_["server-down"]["found"]


def test_bad_environment(found, monkeypatch):
    """A password with a `/` in it, which makes another address of the rest."""
    monkeypatch.setenv("HTTP_PROXY", f"http://user:{KEY}/x@127.0.0.1:9")
    codes = found("http://writer.invalid:8000/v1")
    assert set(codes) == {"bad-environment", "proxy"}


def test_not_an_api(found, hymem_double):
    with Answering(Body("<html>", content_type="text/html")) as server:
        assert "/v1" in found(server.base_url)["not-an-api"]["todo"]
    assert "HTTP 404" in found(hymem_double.url)["not-an-api"]["found"]


def test_everos_there(found):
    """As EverOS 1.5.1 answers, which takes port 8000 as vLLM does."""
    missing, wrong_method = Body({"detail": "Not Found"}, 404), Body({"detail": "Method Not Allowed"}, 405)
    with Answering(missing, **{"/api/v1/memory/add": wrong_method}) as server:
        assert "EVEROS_API__PORT" in found(server.base_url)["everos-there"]["todo"]


def test_key_refused(found):
    with Double(api_key="another") as double:
        assert set(found(double.base_url, api_key=KEY)) == {"key-refused"}
    with Double(api_key=KEY) as double:
        assert found(double.base_url, api_key=KEY) == {}


def test_wrong_model(found, hymem_double):
    finding = found(f"{hymem_double.url}/v1", model="hi-memory")["wrong-model"]
    assert "'hy-memory'" in finding["found"]
    assert found(f"{hymem_double.url}/v1", "--model", "hy-memory") == {}


def test_window_unknown_and_untested_server(found, hymem_double):
    def less(path, answer):
        if path == "/v1/models":
            for each in answer["data"]:
                del each["max_model_len"]
        return {"version": "0.99.0"} if path == "/version" else answer

    with Gateway(hymem_double.url, change=less) as gateway:
        codes = found(gateway.base_url)
    assert set(codes) == {"window-unknown", "untested-server"}
    assert {each["level"] for each in codes.values()} == {"note"}
    with Gateway(hymem_double.url, missing=("/version",)) as gateway:
        assert found(gateway.base_url) == {}
    assert "gateway" in found.facts


@pytest.mark.hymem_real
def test_kwargs_dropped_before_a_template_that_minds(found, hymem_server):
    with Gateway(hymem_server.url, drop=("chat_template_kwargs",)) as gateway:
        finding = found(gateway.base_url)["chat-refused"]
    assert "may be dropped on the way" in finding["found"]


class KnowsItsOwnFields(Double):
    """A server of another kind, which no template asks for anything."""

    def __init__(self):
        super().__init__("hyv3-dummy")

    def answer(self, method, path, headers, raw):
        if path.endswith("/chat/completions") and "chat_template_kwargs" in json.loads(raw):
            inner = {"message": KEY, "type": "invalid_request_error", "param": "chat_template_kwargs"}
            return Body({"error": inner}, 400)
        return super().answer(method, path, headers, raw)


def test_kwargs_refused(found):
    with KnowsItsOwnFields() as server:
        assert "reasoning_effort" in found(server.base_url)["kwargs-refused"]["todo"]
        assert found(server.base_url, reasoning_effort="none") == {}


@pytest.mark.hymem_model("hyv3-dummy")
def test_kwargs_dropped_before_a_template_that_does_not(found, hymem_server):
    with Gateway(hymem_server.url, drop=("chat_template_kwargs",)) as gateway:
        finding = found(gateway.base_url)["kwargs-dropped"]
    assert "--default-chat-template-kwargs" in finding["todo"]


@pytest.mark.hymem_model("hyv3-dummy")
def test_thinking_on(found, hymem_server):
    assert "thinking-on" not in found(f"{hymem_server.url}/v1")
    finding = found(f"{hymem_server.url}/v1", reasoning_effort="high")["thinking-on"]
    assert "HYMEM_REASONING_EFFORT" in finding["todo"]


def test_thinking_that_is_in_the_text(found, hymem_double):
    def thinks(path, answer):
        if path.endswith("/chat/completions"):
            answer["choices"][0]["message"]["content"] = "<think>Hm.</think>Hello."
        return answer

    with Gateway(hymem_double.url, change=thinks) as gateway:
        finding = found(gateway.base_url)["thinking-on"]
    assert "template" in finding["todo"]


def test_chat_refused(found, hymem_writer):
    hymem_writer.reply(None, status=500, body={"error": {"message": KEY, "type": "InternalServerError"}})
    assert "HTTP 500" in found(hymem_writer.base_url)["chat-refused"]["found"]


def test_a_gateway_without_a_list_of_models(found, hymem_double):
    with Gateway(hymem_double.url, missing=("/v1/models",)) as gateway:
        assert set(found(gateway.base_url)) == {"window-unknown"}
    assert "no_think is heeded" in found.facts


def test_an_answer_of_another_shape(found, hymem_double):
    def odd(path, answer):
        if path.endswith("/chat/completions"):
            answer["choices"][0]["message"] = None
        return answer

    with Gateway(hymem_double.url, change=odd) as gateway:
        assert set(found(gateway.base_url)) == {"chat-refused"}


def test_no_structured_output(found, hymem_double):
    with Gateway(hymem_double.url, drop=("response_format",)) as gateway:
        assert set(found(gateway.base_url)) == {"no-structured-output"}
        assert found(gateway.base_url, structured_output="never") == {}


def test_a_proxy_and_a_key_in_the_open(found, hymem_double, monkeypatch):
    with Gateway(hymem_double.url) as gateway:
        monkeypatch.setenv("HTTP_PROXY", gateway.url.replace("//", "//user:sk-planted@"))
        codes = found("http://writer.invalid:8000/v1", api_key=KEY)
        assert set(codes) == {"proxy", "key-unencrypted"}
        assert "writer.invalid" in codes["proxy"]["todo"]
        assert gateway.url.removeprefix("http://") in codes["proxy"]["found"]
        assert found(f"{hymem_double.url}/v1", api_key=KEY) == {}  # not for a server on this machine
        monkeypatch.setenv("NO_PROXY", "writer.invalid:8000")
        assert "proxy" not in found("http://writer.invalid:8000/v1")
        headers = json.dumps({"authorization": f"Bearer {KEY}"})
        assert "key-unencrypted" in found("http://writer.invalid:8000/v1", headers=headers)


def test_bad_setting(found, hymem_double):
    assert "HYMEM_TIMEOUT" in found(f"{hymem_double.url}/v1", timeout="soon")["bad-setting"]["found"]


def test_a_framework_that_is_none():
    assert main(["doctor", "mem00"]) == 2
    with pytest.raises(SettingsError, match="mem0"):
        doctor.examine("mem00")


def test_it_is_one_screen_of_text(capsys, monkeypatch, hymem_double):
    monkeypatch.setenv("HYMEM_BASE_URL", f"{hymem_double.url}/v1")
    monkeypatch.setenv("HYMEM_API_KEY", KEY)
    assert main(["doctor"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) < 120
    assert all(line.isascii() for line in lines)
    assert not any(KEY in line for line in lines)


# -- the hook, and what is installed -------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment") / "made")


def codes(environment, *arguments, options=(), **environ):
    done = environment.run(*options, "-m", "hymem", "doctor", "--json", *arguments, **environ)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert done.returncode == report["exit"]
    found = {each["code"]: each for each in report["findings"]}
    assert set(found) <= set(doctor.LEVELS)
    return found


def test_hook_running(environment):
    assert not {"hook-missing", "hook-off", "hook-not-run"} & set(codes(environment, HYMEM_ENABLE="all"))


def test_hook_off(environment):
    assert codes(environment, HYMEM_AUTOLOAD="0")["hook-off"]["level"] == "warning"


def test_hook_not_run(environment):
    assert "site-packages" in codes(environment, options=("-S",))["hook-not-run"]["todo"]


def test_a_name_in_hymem_enable_that_is_none(environment):
    assert "'mem0'" in codes(environment, HYMEM_ENABLE="mem00")["bad-setting"]["found"]


def test_no_integration(environment):
    assert "pip install" in codes(environment)["no-integration"]["todo"]


@pytest.mark.parametrize("framework", ["llama-index", "langchain", "hy_memory"])
def test_a_framework_of_which_nothing_is_here(environment, framework):
    assert {"integration-missing", "framework-missing"} <= set(codes(environment, framework))


@pytest.mark.parametrize(("arguments", "named"), [(("memos",), ""), ((), "memos"), (("MEMOS",), "")])
def test_integration_missing(environment, arguments, named):
    found = codes(environment, *arguments, HYMEM_ENABLE=named)
    assert "pip install hymem-memos" in found["integration-missing"]["todo"]
    assert "framework-missing" in found


def write(environment, files):
    for name, text in files.items():
        path = environment.site / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_other_project(environment):
    """The index's own `memos`, as its 0.37.0 is laid out."""
    write(
        environment,
        {"memos/__init__.py": "", "memos-0.37.0.dist-info/METADATA": "Name: memos\nVersion: 0.37.0\n"},
    )
    finding = codes(environment, "memos")["other-project"]
    assert "another project" in finding["found"]
    assert "pip install MemoryOS" in finding["found"]


def test_too_old(environment):
    """`everos` as it was before 1.0: a client of a cloud, with nothing to route."""
    metadata = "Name: everos\nVersion: 0.4.0\n"
    write(environment, {"everos/__init__.py": "", "everos-0.4.0.dist-info/METADATA": metadata})
    assert "cloud" in codes(environment, "evermemos")["too-old"]["found"]


EXAMPLE = """
from hymem.frameworks import Framework
from hymem.integration import Fault, Integration

INTEGRATION = Integration(
    Framework("example", "Example", "example", "example", "hymem-example", anchor="example.llm", {more}),
    core={core!r}, call_sites=(), base=lambda switch: [], routed=lambda switch: [], attach_to=None,
)
"""


@pytest.fixture
def example(tmp_path):
    """An integration of a framework of one file, in an environment of its own."""
    made = Environment(tmp_path / "made")

    def integrate(*, core="0.1", more="", framework="", seams=EXAMPLE):
        dist = "hymem_example-0.1.0.dist-info"
        points = "[hymem.integrations]\nexample = hymem_example\n"
        write(
            made,
            {
                "hymem_example/__init__.py": "",
                "hymem_example/seams.py": seams.replace("{core!r}", repr(core)).replace("{more}", more),
                f"{dist}/METADATA": "Name: hymem-example\nVersion: 0.1.0\n",
                f"{dist}/entry_points.txt": points,
            },
        )
        if framework is not None:
            metadata = "Name: example\nVersion: 2.0\n"
            write(made, {"example/__init__.py": framework, "example/llm.py": ""})
            write(made, {"example-2.0.dist-info/METADATA": metadata})
        return made

    return integrate


def test_framework_missing(example):
    assert "hymem-example[example]" in codes(example(framework=None), "example")["framework-missing"]["found"]


def test_framework_untested(example):
    assert codes(example(more="tested=('1.0',)"), "example")["framework-untested"]["level"] == "note"
    assert "framework-untested" not in codes(example(more="tested=('2.0',)"), "example")


def test_what_a_framework_prints_is_not_in_the_report(example):
    done = example(framework="print('hello')").run("-m", "hymem", "doctor", "example", "--json")
    assert json.loads(done.stdout)["hymem"]
    assert done.stderr == "hello\n"


def test_framework_fault(example):
    fault = "attach_to=None, faults=lambda version: [Fault(f'{version} forgets', 'use another')]"
    found = codes(example(seams=EXAMPLE.replace("attach_to=None", fault)), "example")["framework-fault"]
    assert (found["level"], found["todo"]) == ("warning", "use another")
    assert "2.0 forgets" in found["found"]


def test_framework_broken(example):
    broken = example(framework="raise SystemExit(3)")
    assert "SystemExit" in codes(broken, "example")["framework-broken"]["found"]
    broken = example(framework="raise ValueError('sk-planted')")
    assert codes(broken, "example")["framework-broken"]["found"].endswith("ValueError")
    broken = example(framework="import not_there")
    assert "not_there" in codes(broken, "example")["framework-broken"]["found"]


def test_integration_broken(example):
    for seams in ("def (", "raise SystemExit(3)", "import not_there"):
        finding = codes(example(seams=seams), "example")["integration-broken"]
        assert "pip install --force-reinstall hymem-example" in finding["todo"]


def test_core_mismatch(example):
    assert "9.9" in codes(example(core="9.9"), "example")["core-mismatch"]["found"]


def test_a_module_of_the_framework_that_has_gone(example):
    made = example()
    (made.site / "example" / "llm.py").unlink()
    assert "example.llm" in codes(made, "example")["seam-missing"]["found"]


def test_hook_missing(example):
    made = example()
    made.remove("hymem-autoload")
    found = codes(made, HYMEM_ENABLE="all")
    assert "pip install hymem-autoload" in found["hook-missing"]["todo"]
    assert "hook-missing" not in codes(made)


# -- the rest of the command line ----------------------------------------------------------------


def test_status(example, tmp_path):
    (tmp_path / "hymem.toml").write_text("timeout = 7\n")
    environ = {"HYMEM_CONFIG": str(tmp_path / "hymem.toml"), "HYMEM_API_KEY": KEY, "HYMEM_ENABLE": "all"}
    environ["HYMEM_HEADERS"] = json.dumps({"x-team": KEY})
    done = example().run("-m", "hymem", "status", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert ["timeout", "7.0", str(tmp_path / "hymem.toml")] in rows
    assert ["api_key", "set", "HYMEM_API_KEY"] in rows
    assert ["headers", "x-team", "HYMEM_HEADERS"] in rows
    assert ["hymem-example", "example 2.0", "enabled at its import"] in rows
    assert KEY not in done.stdout
    assert example().run("-m", "hymem", "status", HYMEM_TIMEOUT="soon").returncode == 2


KEPT = """
import os

class Kept:
    waiting = int(os.environ["EXAMPLE_WAITING"])

    def count(self):
        return self.waiting

    def replay(self, progress):
        progress(f"{self.waiting} of {INTEGRATION.writer.settings.model}")
        self.waiting -= 1
        return self.waiting
"""


def test_what_an_integration_has_kept(example):
    made = example(seams=KEPT + EXAMPLE.replace("attach_to=None", "attach_to=None, kept=Kept()"))
    assert "hymem replay example" in codes(made, "example", EXAMPLE_WAITING="2")["writes-kept"]["todo"]
    assert "2 write(s) that failed" in made.run("-m", "hymem", "status", EXAMPLE_WAITING="2").stdout
    assert "writes-kept" not in codes(made, "example", EXAMPLE_WAITING="0")
    for waiting, code, said, told in (
        ("2", 1, "1 write(s) left\n", "hymem: 2 of another\n"),
        ("1", 0, "nothing is left to write\n", "hymem: 1 of another\n"),
        ("0", 0, "nothing is left to write\n", ""),
    ):
        environ = {"EXAMPLE_WAITING": waiting, "HYMEM_MODEL": "another"}
        done = made.run("-m", "hymem", "replay", "example", **environ)
        assert (done.returncode, done.stdout, done.stderr) == (code, said, told)


def test_there_is_nothing_to_replay_where_nothing_is_kept(example):
    done = example().run("-m", "hymem", "replay", "example")
    assert done.returncode == 2
    assert "there is nothing to replay" in done.stderr


def test_call_sites_of_an_integration_that_is_not_there(environment):
    done = environment.run("-m", "hymem", "call-sites", "memos")
    assert done.returncode == 2
    assert "installed: none" in done.stderr


def test_every_finding_has_its_test():
    root = Path(__file__).parents[3]
    tests = [Path(__file__), *(root / "integrations").glob("*/tests/test_doctor.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [code for code in doctor.LEVELS if f'"{code}"' not in text] == []
