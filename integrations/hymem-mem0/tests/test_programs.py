"""Programs that know nothing of hymem: switched on by what is installed, by the environment, or by
`python -m hymem run`, as real processes, under gunicorn and uvicorn too."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from adapter import Mem0
from mem0_bank import SITES

from hymem_mem0.seams import FRAMEWORK
from hymem_testing.conformance import USERS_KEY
from hymem_testing.environment import Environment

WRITERS_KEY = "sk-writers-key"
PROGRAM = Path(__file__).with_name("program.py")
OSLO = "Lives in Oslo"
QUESTION = "What is a question?"
SAID = {"messages": [{"role": "user", "content": "I live in Oslo."}], "user_id": "ann"}


@pytest.fixture
def environment(tmp_path):
    made = Environment(tmp_path / "environment")
    shutil.copy(PROGRAM, made.place / "program.py")
    return made


@pytest.fixture
def servers(hymem_writer, hymem_main, tmp_path):
    """Both know what to say, and which of them said it can be told from the memory."""
    mem0 = Mem0(tmp_path)
    mem0.script(hymem_writer, [OSLO])
    mem0.script(hymem_main, ["Written by the main model"])
    hymem_main.reply(lambda body: body["messages"][-1]["content"] == QUESTION, "an answer")
    return hymem_writer, hymem_main


@pytest.fixture
def before(servers, tmp_path):
    return Mem0(tmp_path).before(servers[1])


@pytest.fixture
def after(servers, tmp_path):
    writer, main = servers
    return Mem0(tmp_path).after(main, {"base_url": writer.base_url, "api_key": WRITERS_KEY})


@pytest.fixture
def settings(servers):
    """Of the writer, from the environment."""
    return {"HYMEM_BASE_URL": servers[0].base_url, "HYMEM_API_KEY": WRITERS_KEY}


def check(servers, writes=1):
    """The writes went to the writer, and neither server has seen the other's key."""
    writer, main = servers
    assert len(writer.chats) == writes * len(SITES)
    assert not [sent for sent in main.chats if sent.text != QUESTION]
    for proxy, key in ((writer, WRITERS_KEY), (main, USERS_KEY)):
        assert {sent.headers["authorization"] for sent in proxy.requests} <= {f"Bearer {key}"}


def result(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().rpartition("\n")[2])


# -- by what is installed, and by the environment ------------------------------------------------


@pytest.mark.hymem_short
def test_a_configuration_that_names_it_is_enough(environment, servers, after):
    """The user's own script and a JSON configuration, with `hymem-mem0[autoload]` installed."""
    done = environment.run("program.py", "I live in Oslo.", MEMORY_CONFIG=json.dumps(after))
    assert result(done)["memories"] == [OSLO]
    check(servers)


@pytest.mark.hymem_short
@pytest.mark.parametrize("named", ["mem0", "all"])
def test_the_environment_is_enough(environment, servers, before, settings, named):
    environ = {"MEMORY_CONFIG": json.dumps(before), "HYMEM_ENABLE": named, **settings}
    assert result(environment.run("program.py", "I live in Oslo.", **environ))["memories"] == [OSLO]
    check(servers)


def test_without_a_word_nothing_changes(environment, servers, before, settings):
    done = environment.run("program.py", "I live in Oslo.", MEMORY_CONFIG=json.dumps(before), **settings)
    assert result(done)["memories"] == ["Written by the main model"]
    assert servers[0].requests == []


def test_switched_off_the_name_is_not_known(environment, after):
    done = environment.run("program.py", MEMORY_CONFIG=json.dumps(after), HYMEM_AUTOLOAD="0")
    assert done.returncode == 1
    assert "hy_memory" in done.stderr


def test_a_configuration_that_is_wrong(environment, servers, before, after, settings):
    """Of a framework that is named it is the import's error; of `all` one line, and Mem0 as it was."""
    environ = {"MEMORY_CONFIG": json.dumps(before), **settings, "HYMEM_TIMEOUT": "soon"}
    named = environment.run("program.py", "I live in Oslo.", HYMEM_ENABLE="mem0", **environ)
    assert named.returncode == 1
    assert "SettingsError: setting 'timeout' (HYMEM_TIMEOUT)" in named.stderr
    every = environment.run("program.py", "I live in Oslo.", HYMEM_ENABLE="all", **environ)
    assert result(every)["memories"] == ["Written by the main model"]
    assert len([line for line in every.stderr.splitlines() if "HYMEM_TIMEOUT" in line]) == 1
    assert WRITERS_KEY not in named.stderr + every.stderr
    assert servers[0].requests == []


@pytest.mark.parametrize("first", ["from hymem_mem0 import HyMemoryLLM", "import hymem_mem0.models"])
def test_our_own_class_imported_first(environment, first):
    """It needs Mem0, at whose import the hook makes the class known that is being made just then."""
    code = "from mem0.utils.factory import LlmFactory; print('hy_memory' in LlmFactory.provider_to_class)"
    done = environment.run("-c", f"{first}; import mem0; {code}", HYMEM_ENABLE="mem0")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_imported_and_enabled_at_once(environment):
    """By two threads, of which one has the import's lock and the hook, the other `enable()`."""
    code = """
import threading
ready = threading.Barrier(2)
def imports():
    ready.wait()
    import mem0
def enables():
    import hymem_mem0
    ready.wait()
    hymem_mem0.enable()
threads = [threading.Thread(target=each, daemon=True) for each in (imports, enables)]
for thread in threads: thread.start()
for thread in threads: thread.join(120)
import hymem_mem0
print(any(thread.is_alive() for thread in threads), all(hymem_mem0.enable().status().values()))
"""
    done = environment.run("-c", code, HYMEM_ENABLE="mem0")
    assert done.stdout == "False True\n", done.stderr


@pytest.mark.parametrize("environ", [{"HYMEM_ENABLE": "mem0"}, {}, {"HYMEM_AUTOLOAD": "0"}])
def test_a_reload_is_followed(environment, servers, before, settings, environ):
    """Objects made before it and after it, with the hook and without."""
    code = """
import importlib, json, os, mem0.memory.main, hymem_mem0
hymem_mem0.enable()
config = json.loads(os.environ["MEMORY_CONFIG"])
before = mem0.memory.main.Memory.from_config(config)
old = mem0.memory.main.Memory
importlib.reload(mem0.memory.main)
before.add("I live in Oslo.", user_id="ann")
handle = hymem_mem0.enable(model="another", replace=True)
assert handle.status() and all(handle.status().values()), handle.status()
config["vector_store"]["config"]["path"] += "x"
after = mem0.memory.main.Memory.from_config(config)
assert type(after) is not type(before)
for memory in (before, after):
    memory.add("I live in Oslo.", user_id="ann")
handle.disable()
hymem_mem0.disable()
print([hasattr(each, "_add_to_vector_store") and "llm" in vars(each) for each in (old, type(after))])
"""
    done = environment.run("-c", code, MEMORY_CONFIG=json.dumps(before), **environ, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[False, False]")
    check(servers, writes=3)


# -- python -m hymem run -------------------------------------------------------------------------


@pytest.fixture
def run(environment, before, settings):
    def run_(*arguments, **environ):
        given = {"MEMORY_CONFIG": json.dumps(before), "HYMEM_AUTOLOAD": "0", **settings, **environ}
        return environment.run("-m", "hymem", "run", *arguments, **given)

    return run_


@pytest.mark.hymem_short
def test_a_script(run, environment, servers):
    (environment.place / "sub").mkdir()
    (environment.place / "program.py").rename(environment.place / "sub" / "program.py")
    done = run("sub/program.py", "--", "I live in Oslo.", "-m", "--help")
    found = result(done)
    assert found["memories"] == [OSLO]
    assert found["argv"] == ["sub/program.py", "--", "I live in Oslo.", "-m", "--help"]
    assert found["path"] == str(environment.place / "sub")
    assert found["name"] == "__main__"
    assert f"hymem: mem0 writes with 'hy-memory' at {servers[0].base_url}" in done.stderr
    assert WRITERS_KEY not in done.stderr
    check(servers)


def test_a_module(run, environment, servers):
    found = result(run("-m", "program", "I live in Oslo."))
    assert found["memories"] == [OSLO]
    assert found["argv"] == [str(environment.place / "program.py"), "I live in Oslo."]
    assert found["path"] == str(environment.place)
    assert found["name"] == "__main__"
    check(servers)


def test_a_command_that_a_package_has(run, environment, servers):
    dist = environment.site / "program-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Name: program\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[console_scripts]\nremember = program:main\n")
    (environment.site / "program.py").symlink_to(environment.place / "program.py")
    found = result(run("remember", "I live in Oslo."))
    assert found["memories"] == [OSLO]
    assert found["argv"] == ["remember", "I live in Oslo."]
    check(servers)


@pytest.mark.parametrize("kind", ["package", "folder", "zip"])
def test_other_kinds_of_program(run, environment, kind):
    """What such a program finds is what it finds without us."""
    code = "import sys, json, beside; print(json.dumps([sys.argv, sys.path[0], __package__, __spec__.name]))"
    folder = environment.place / "kind"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text(code if kind != "package" else code.replace("beside", "kind.beside"))
    (folder / "beside.py").write_text("")
    if kind == "zip":
        shutil.make_archive(str(folder), "zip", folder)
    arguments = {"package": ("-m", "kind"), "folder": ("kind",), "zip": ("kind.zip",)}[kind]
    found = result(run(*arguments, "an argument"))
    assert found == result(environment.run(*arguments, "an argument", HYMEM_AUTOLOAD="0"))


def test_a_program_is_there_until_its_last_thread_ends(run, environment):
    (environment.place / "late.py").write_text(
        "import atexit, pickle, threading, time\n"
        "class Kept: ...\n"
        "def late():\n    time.sleep(0.2)\n    pickle.dumps(Kept())\n    print('late')\n"
        "threading.Thread(target=late).start()\n"
        "atexit.register(lambda: print(pickle.loads(pickle.dumps(Kept)) is Kept))\n"
    )
    assert run("late.py").stdout.split() == ["late", "True"]


def test_children_of_other_kinds(run, environment):
    """A child of an environment where the variable is set and empty; and a program started by its file's
    number, which must not become an error of ours."""
    code = "import os, subprocess, sys\n"
    code += "child = [sys.executable, '-c', 'import os; print(os.environ.get(\"HYMEM_ENABLE\"))']\n"
    (environment.place / "child.py").write_text(code + "subprocess.run(child)\n")
    assert run("child.py", HYMEM_AUTOLOAD="1", HYMEM_ENABLE="").stdout == "mem0\n"
    code = "import os\nos.execve(os.open('/bin/true', os.O_RDONLY), ['true'], {})\n"
    (environment.place / "exec.py").write_text(code)
    assert run("exec.py").returncode == 0


def test_a_framework_that_nobody_named_and_that_is_broken(run, environment):
    """The program may not need it."""
    (environment.place / "fine.py").write_text("print('fine')")
    dist = environment.site / "hymem_broken-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Name: hymem-broken\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[hymem.integrations]\nbroken = hymem_broken\n")
    (environment.site / "hymem_broken.py").write_text("raise AttributeError('sk-planted')")
    for named in ("", "all", "all,mem0"):
        done = run("fine.py", HYMEM_ENABLE=named)
        assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
        assert "hymem: broken is left as it is: AttributeError\n" in done.stderr
    assert run("fine.py", HYMEM_ENABLE="broken").returncode == 1


def test_the_programs_errors_are_its_own(run, environment):
    (environment.place / "fails.py").write_text("import hymem\nraise hymem.SettingsError('of the program')")
    done = run("fails.py")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    (environment.place / "exits.py").write_text("raise SystemExit(7)")
    assert run("exits.py").returncode == 7


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (("nope",), {}, "neither a file here nor a command"),
        (("-m", "nope"), {}, "no module 'nope'"),
        (("-m", "nope.sub"), {}, "no module 'nope.sub'"),
        ((".",), {}, "no __main__.py"),
        (("program.py",), {"HYMEM_ENABLE": "mem00"}, "did you mean 'mem0'?"),
        (("program.py",), {"HYMEM_ENABLE": "memos"}, "pip install hymem-memos"),
        (("program.py",), {"HYMEM_TIMEOUT": "soon", "HYMEM_ENABLE": "mem0"}, "HYMEM_TIMEOUT"),
        (("program.py",), {"HYMEM_TIMEOUT": "soon"}, "there is nothing to enable"),
    ],
)
def test_what_cannot_be_run(run, arguments, environ, said):
    done = run(*arguments, **environ)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# -- under servers -------------------------------------------------------------------------------


class Service:
    """The program under a real server, on a Unix socket."""

    def __init__(self, environment, before, settings):
        self.environment, self.before, self.settings = environment, before, settings
        self.socket = str(environment.place / "s")
        self.log = environment.place / "log"

    @contextlib.contextmanager
    def serving(self, *command, **environ):
        given = {"MEMORY_CONFIG": json.dumps(self.before), **self.settings, **environ}
        arguments = [str(self.environment.python), *command]
        with self.log.open("w") as log:
            options = {"stdout": log, "stderr": log, "start_new_session": True, "cwd": self.environment.place}
            process = subprocess.Popen(arguments, env=self.environment.environ(**given), **options)
            try:
                self._wait(process)
                yield
            finally:
                process.terminate()
                process.wait(60)

    def _wait(self, process):
        while process.poll() is None:
            try:
                self.ask("GET", "/memories?user_id=nobody")
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(self.said)

    @property
    def said(self):
        return self.log.read_text()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("localhost", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        with contextlib.closing(connection):
            connection.sock.connect(self.socket)
            connection.request(method, path, json.dumps(body))
            answer = connection.getresponse()
            found = json.loads(answer.read())
        assert answer.status == 200, found
        return found


@pytest.fixture
def service(environment, before, settings):
    return Service(environment, before, settings)


def test_a_rest_server_that_is_configured(service, servers, after):
    """`POST /configure` is merged over a default that has the user's own key, as Mem0's server does."""
    default = {**service.before, "llm": {**service.before["llm"]}}
    default["llm"]["config"] = {**default["llm"]["config"], "temperature": 0.2}
    service.before, service.settings = default, {}
    with service.serving("-m", "uvicorn", "--uds", service.socket, "program:app"):
        service.ask("POST", "/memories", SAID)
        assert service.ask("GET", "/memories?user_id=ann")["memories"] == ["Written by the main model"]
        servers[1].requests.clear()
        service.ask("POST", "/configure", {"llm": after["llm"]})
        service.ask("POST", "/memories", SAID)
        assert service.ask("GET", "/memories?user_id=ann")["memories"] == [OSLO]
        assert service.ask("POST", "/answer", {"question": QUESTION})["answer"] == "an answer"
    check(servers)
    assert {sent.json["temperature"] for sent in servers[0].chats} == {0.0}


RUN = ("-m", "hymem", "run")
once = pytest.mark.skipif(
    version("mem0ai") != FRAMEWORK.newest, reason="what servers do with processes is tried with the newest"
)


@once
@pytest.mark.parametrize("preload", [(), ("--preload",)])
def test_gunicorn_forks_its_workers(service, servers, preload):
    gunicorn = ("-m", "gunicorn", "--workers", "2", "--bind", f"unix:{service.socket}", *preload)
    with service.serving(*RUN, *gunicorn, "program:wsgi", HYMEM_AUTOLOAD="0"):
        writes, workers = 0, set()
        while len(workers) < 2:
            workers.add(service.ask("POST", "/memories", SAID)["pid"])
            writes += 1
        assert service.ask("POST", "/answer", {"question": QUESTION})["answer"] == "an answer"
    check(servers, writes)
    assert "afresh" not in service.said


@once
@pytest.mark.parametrize("command", [("-m", "uvicorn"), ("uvicorn",)])
def test_uvicorn_in_one_process(service, servers, command):
    uvicorn = (*command, "--uds", service.socket, "program:app")
    with service.serving(*RUN, *uvicorn, HYMEM_AUTOLOAD="0"):
        service.ask("POST", "/memories", SAID)
        assert service.ask("GET", "/memories?user_id=ann")["memories"] == [OSLO]
    check(servers)


@once
@pytest.mark.parametrize("fresh", ["--reload", "--workers=2"])
def test_uvicorn_starts_pythons_afresh(service, servers, fresh):
    """There `run` does not reach, and says what does; with it installed, it does."""
    uvicorn = ("-m", "uvicorn", fresh, "--uds", service.socket, "program:app")
    with service.serving(*RUN, *uvicorn, HYMEM_AUTOLOAD="0"):
        service.ask("POST", "/memories", SAID)
    assert servers[0].requests == []
    (said,) = (line for line in service.said.splitlines() if "afresh" in line)
    assert "HYMEM_ENABLE=mem0" in said
    assert "pip install hymem-autoload" in said
    servers[1].requests.clear()
    with service.serving(*RUN, *uvicorn):
        service.ask("POST", "/memories", SAID)
    assert "afresh" not in service.said
    check(servers)
