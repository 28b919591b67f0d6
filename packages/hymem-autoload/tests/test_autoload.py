"""The start-up file as it is installed, in processes of their own, with everything broken that can be.

The framework and the integration here are a few lines each on `PYTHONPATH`, under the real names:
what is tested is the finder. Real ones are switched on in the integrations' own tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from importlib.metadata import files

import pytest

import _hymem_autoload

REGISTERS = """
import hymem_log
def register(): hymem_log.did.append("register")
def enable(): hymem_log.did.append("enable")
"""
DID = "import mem0, hymem_log; print(hymem_log.did)"
LOG = "import hymem_log; print(hymem_log.did)"
FINDERS = "import sys; print(sum(type(each).__module__ == '_hymem_autoload' for each in sys.meta_path))"
OURS = """
class HymemError(Exception): ...
class SeamMissing(HymemError): ...
"""


@pytest.fixture
def place(tmp_path):
    """A folder on `PYTHONPATH` with a framework and its integration."""
    write(tmp_path, "hymem_log.py", "did = []")
    write(tmp_path, "mem0/__init__.py", "from mem0.memory.main import Memory")
    write(tmp_path, "mem0/memory/__init__.py", "")
    write(tmp_path, "mem0/memory/main.py", "class Memory: ...")
    write(tmp_path, "hymem_mem0.py", REGISTERS)
    return tmp_path


def write(place, name, text):
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def run(place, code, *options, **environ):
    """A fresh interpreter; its output, and what it says on stderr."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HYMEM_")}
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        env={**inherited, "PYTHONPATH": str(place), **environ},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def said(place, code, *options, **environ):
    """What it prints, of a process that ends well and is silent on stderr."""
    done = run(place, code, *options, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# -- at the start --------------------------------------------------------------------------------


def test_a_start_costs_one_module_and_one_finder(place):
    code = "import sys; print(*sorted(sys.modules))"
    without = set(said(place, code, HYMEM_AUTOLOAD="0").split())
    assert set(said(place, code).split()) - without == {"_hymem_autoload"}
    assert said(place, FINDERS) == "1"


@pytest.mark.parametrize(
    ("options", "environ", "finders"),
    [
        (("-E",), {}, "1"),
        (("-I",), {}, "1"),
        (("-W", "error"), {}, "1"),
        (("-S",), {}, "0"),
        ((), {"HYMEM_AUTOLOAD": "0"}, "0"),
        (("-I",), {"HYMEM_AUTOLOAD": "0"}, "0"),
    ],
)
def test_when_it_runs(place, options, environ, finders):
    assert said(place, FINDERS, *options, **environ) == finders


@pytest.mark.parametrize(
    "broken",
    [
        "raise SystemExit(3)",
        "raise KeyboardInterrupt",
        "raise RuntimeError('broken')",
        "def watch(:",
        "import not_there_at_all",
        "nothing = 'here'",
        "def watch(): raise SystemExit(3)",
        "import warnings; warnings.warn('x')",
    ],
)
def test_whatever_is_broken_in_it_the_interpreter_starts(place, broken):
    write(place, "_hymem_autoload.py", broken)
    assert said(place, "print('started')", "-W", "error") == "started"
    write(place, "_hymem_autoload.py", "raise SystemExit(3)")
    assert said(place, "print('started')", HYMEM_AUTOLOAD="0") == "started"


def test_started_twice_it_is_there_once(place):
    twice = "import _hymem_autoload; _hymem_autoload.watch(); _hymem_autoload.watch();"
    assert said(place, twice + FINDERS) == "1"
    assert said(place, twice + "_hymem_autoload.unwatch();" + FINDERS) == "0"


def test_what_is_installed_is_what_the_page_says():
    installed = {str(each) for each in files("hymem-autoload") if ".dist-info" not in str(each)}
    shown = {each for each in installed if not each.endswith(".pyc")}
    names = {"__init__.py", "py.typed"}
    assert shown == {"hymem_autoload.pth", "hymem_autoload.start", *(f"_hymem_autoload/{n}" for n in names)}
    (start,) = (each for each in files("hymem-autoload") if str(each) == "hymem_autoload.start")
    module, _, function = start.read_text().strip().partition(":")
    assert callable(getattr(sys.modules[module], function))  # PEP 829: no arguments, no value


# -- at a framework's import ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "did"),
    [
        ({}, ["register"]),
        ({"HYMEM_ENABLE": ""}, ["register"]),
        ({"HYMEM_ENABLE": "mem0"}, ["register", "enable"]),
        ({"HYMEM_ENABLE": "all"}, ["register", "enable"]),
        ({"HYMEM_ENABLE": "langchain, MEM0"}, ["register", "enable"]),
        ({"HYMEM_ENABLE": "langchain llama_index"}, ["register"]),
    ],
)
@pytest.mark.parametrize("options", [(), ("-W", "error")])
def test_what_is_switched_on(place, options, environ, did):
    assert said(place, DID, *options, **environ) == str(did)
    assert said(place, "import mem0.memory.main; " + LOG, **environ) == str(did)


def test_switched_off_nothing_is(place):
    assert said(place, DID, HYMEM_AUTOLOAD="0", HYMEM_ENABLE="mem0") == "[]"


def test_what_the_program_puts_into_its_environment_counts(place):
    """As `load_dotenv()` does, before the framework is imported."""
    code = f"import os; os.environ['HYMEM_ENABLE'] = 'mem0'; {DID}"
    assert said(place, code) == "['register', 'enable']"


def test_nothing_is_imported_for_a_program_without_a_framework(place):
    assert said(place, "import json, sys; print('hymem_mem0' in sys.modules, 'hymem' in sys.modules)") == (
        "False False"
    )


BROKEN = {
    "a syntax error": ("def register(:", "SyntaxError"),
    "an exit at its import": ("raise SystemExit(3)", "SystemExit"),
    "an error at its import": ("raise RuntimeError('broken')", "RuntimeError"),
    "the core is not there": ("import hymem_core_that_is_not_there", "hymem_core_that_is_not_there"),
    "no register()": ("", "AttributeError"),
    "an exit in register()": ("def register(): raise SystemExit(3)", "SystemExit"),
    "a warning in register()": (
        "import warnings\ndef register(): warnings.warn('x', UserWarning)",
        "UserWarning",
    ),
    "an error of ours": (
        OURS + "def register(): raise SeamMissing('not there: mem0:X.y')",
        "not there: mem0:X.y",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("asked", ["", "all"])
def test_a_broken_integration_is_one_line_and_the_framework_is_there(place, name, asked):
    text, told = BROKEN[name]
    write(place, "hymem_mem0.py", text)
    done = run(place, "import mem0; print(mem0.Memory.__name__)", "-W", "error", HYMEM_ENABLE=asked)
    assert (done.returncode, done.stdout.strip()) == (0, "Memory")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mem0 is left as it is: ")
    assert told in line


@pytest.mark.parametrize("name", BROKEN)
def test_of_a_framework_that_is_named_it_is_an_error(place, name):
    text, told = BROKEN[name]
    write(place, "hymem_mem0.py", text)
    done = run(place, "import mem0; print('imported')", "-W", "error", HYMEM_ENABLE="mem0")
    assert done.returncode != 0
    assert done.stdout == ""
    assert told in done.stderr or (name.startswith("an exit") and done.returncode == 3)


def test_enabling_that_fails_leaves_it_registered(place):
    write(place, "hymem_mem0.py", REGISTERS + "\ndef enable(): raise RuntimeError('a key: sk-planted')")
    done = run(place, DID, HYMEM_ENABLE="all")
    assert (done.returncode, done.stdout.strip()) == (0, "['register']")
    assert done.stderr.strip() == "mem0 is left as it is: RuntimeError"
    assert run(place, DID, HYMEM_ENABLE="mem0").returncode == 1


def test_it_can_be_tried_again_in_the_same_process(place):
    write(
        place,
        "hymem_mem0.py",
        REGISTERS + "\ndef enable():\n if len(hymem_log.did) < 2: raise RuntimeError\n",
    )
    code = f"try: import mem0\nexcept RuntimeError: pass\n{DID}"
    assert said(place, code, HYMEM_ENABLE="mem0") == "['register', 'register']"


def test_an_integration_that_is_not_there(place):
    (place / "hymem_mem0.py").unlink()
    assert said(place, "import mem0; print('imported')", HYMEM_ENABLE="all langchain") == "imported"
    done = run(place, "import mem0", HYMEM_ENABLE="mem0")
    assert done.returncode == 1
    assert 'pip install "hymem-mem0[autoload]"' in done.stderr


def test_a_name_that_is_none_is_told_once(place):
    done = run(place, f"{DID}; import importlib; importlib.reload(mem0.memory.main)", HYMEM_ENABLE="mem00")
    assert (done.returncode, done.stdout.strip()) == (0, "['register']")
    (line,) = done.stderr.splitlines()
    assert "mem00" in line
    assert "llama-index" in line


def test_a_broken_framework_is_its_own_error(place):
    write(place, "mem0/memory/main.py", "raise ValueError('upstream')")
    done = run(place, f"try: import mem0\nexcept ValueError as error: print(error)\n{LOG}")
    assert done.stdout.split() == ["upstream", "[]"]


# -- among other finders and loaders -------------------------------------------------------------


def test_everybody_sees_the_modules_own_loader(place):
    code = """
    import mem0.memory.main as module, importlib.machinery, inspect
    assert type(module.__loader__) is type(module.__spec__.loader) is importlib.machinery.SourceFileLoader
    assert "exec_module" not in vars(module.__loader__)
    print(inspect.getsource(module.Memory).strip())
    """
    assert said(place, code) == "class Memory: ..."


HOOK = """
import importlib.util, sys
class Hook:
    asking = False
    def find_spec(self, name, path=None, target=None):
        if name != "mem0.memory.main" or self.asking:
            return None
        self.asking = True
        spec = importlib.util.find_spec(name)
        self.asking = False
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            print("hook")
        spec.loader.exec_module = exec_module
        return spec
"""


@pytest.mark.parametrize("where", ["sys.meta_path.insert(0, Hook())", "sys.meta_path.insert(1, Hook())"])
def test_beside_a_hook_of_somebody_else_each_fires_once(place, where):
    assert said(place, f"{HOOK}\n{where}\n{DID}").split() == ["hook", "['register']"]


def test_looking_for_a_module_does_not_import_it(place):
    code = "import importlib.util, hymem_log; importlib.util.find_spec('mem0.memory.main'); "
    code += "print(hymem_log.did); import mem0; print(hymem_log.did)"
    write(place, "mem0/__init__.py", "")
    assert said(place, code.replace("import mem0;", "import mem0.memory.main;")).split("\n") == [
        "[]",
        "['register']",
    ]


def test_many_threads_import_at_once(place):
    code = """
    import threading, importlib, hymem_log
    ready = threading.Barrier(8)
    def work():
        ready.wait()
        importlib.import_module("mem0.memory.main")
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(hymem_log.did)
    """
    assert said(place, code) == "['register']"


def test_a_reload_fires_again(place):
    code = f"import importlib; {DID}; importlib.reload(mem0.memory.main); print(hymem_log.did)"
    assert said(place, code).split("\n")[1] == "['register', 'register']"


def test_a_framework_that_is_imported_already(place):
    code = "import mem0, hymem_log, _hymem_autoload; _hymem_autoload.watch(); print(hymem_log.did)"
    start = "import os; os.environ['HYMEM_AUTOLOAD'] = '1'; "
    assert said(place, start + code, HYMEM_AUTOLOAD="0", HYMEM_ENABLE="mem0") == "['register', 'enable']"
    write(place, "hymem_mem0.py", "raise SystemExit(3)")
    done = run(place, start + code, HYMEM_AUTOLOAD="0", HYMEM_ENABLE="mem0")
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
    assert "SystemExit" in done.stderr


def test_a_framework_in_a_zip_file(place):
    archive = place / "framework.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((place / "mem0").rglob("*.py")):
            file.write(path, path.relative_to(place))
            path.unlink()
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); {DID}"
    assert said(place, code) == "['register']"


def test_a_loader_that_has_more_than_one_module(place):
    """As the one of a zip file's folder. It is only looked for, twice, and then another is imported."""
    write(place, "mem0/memory/other.py", "import hymem_log; hymem_log.did.append('other')")
    write(place, "mem0/__init__.py", "")
    archive = place / "framework.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((place / "mem0").rglob("*.py")):
            file.write(path, path.relative_to(place))
            path.unlink()
    code = f"""
    import sys, importlib.util, hymem_log
    sys.path.insert(0, {str(archive)!r})
    for _ in range(2):
        importlib.util.find_spec("mem0.memory.main")
    import mem0.memory.other
    print(hymem_log.did)
    import mem0.memory.main
    print(hymem_log.did)
    """
    assert said(place, code).splitlines() == ["['other']", "['other', 'register']"]


LOADER = """
class Loader:
    @classmethod
    def create_module(cls, spec): return None
    @classmethod
    def exec_module(cls, module): module.Memory = 1
class Finds:
    def find_spec(self, name, path=None, target=None):
        if name in ("mem0.memory.main", "mem0.memory.other"):
            return importlib.machinery.ModuleSpec(name, LOADER)
import sys, importlib.machinery
sys.meta_path.insert(1, Finds())
"""


def test_a_class_that_is_its_own_loader_is_left_whole(place):
    code = LOADER.replace("LOADER)", "Loader)") + f"import mem0.memory.other; {DID}"
    done = run(place, code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
    assert "cannot be watched" in done.stderr


def test_a_loader_that_has_been_changed_by_somebody_stays_so(place):
    code = LOADER.replace("LOADER)", "loader)") + textwrap.dedent("""
    loader = Loader()
    loader.exec_module = changed = lambda module: setattr(module, "Memory", 2)
    import mem0, hymem_log
    print(mem0.Memory, hymem_log.did, vars(loader)["exec_module"] is changed)
    """)
    assert said(place, code) == "2 ['register'] True"


def test_a_finder_of_the_old_kind_is_passed_over(place):
    """Python before 3.12 asks it itself."""
    code = "class Old:\n    def find_module(self, name, path=None): return None\n"
    assert said(place, f"import sys\n{code}sys.meta_path.insert(1, Old())\n{DID}") == "['register']"


def test_a_log_that_raises_is_not_the_frameworks_error(place):
    write(place, "hymem_mem0.py", "raise RuntimeError")
    code = """
    import logging
    def refuse(record): raise ValueError("a filter")
    logging.getLogger("hymem").addFilter(refuse)
    import mem0
    print(mem0.Memory.__name__)
    """
    assert said(place, code) == "Memory"


def test_a_loader_that_cannot_be_watched(place):
    code = f"""
    import sys, importlib.machinery
    class Loader:
        __slots__ = ()
        def create_module(self, spec): return None
        def exec_module(self, module): module.Memory = 1
    class Finds:
        def find_spec(self, name, path=None, target=None):
            if name == "mem0.memory.main":
                return importlib.machinery.ModuleSpec(name, Loader())
    sys.meta_path.insert(1, Finds())
    {DID}
    """
    done = run(place, code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
    assert "cannot be watched" in done.stderr


def test_the_table_has_every_framework():
    frameworks = pytest.importorskip("hymem.frameworks").KNOWN
    assert set(_hymem_autoload.WATCHED.values()) == set(frameworks)
    for known in frameworks.values():
        assert known.id == "langchain" or _hymem_autoload.WATCHED[known.anchor] == known.id
        assert known.integration == f"hymem-{known.id}"
