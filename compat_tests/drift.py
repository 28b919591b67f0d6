"""Finds out that a framework has changed where we reach into it, before users do.

Per framework, from its sources alone and without importing them: which functions ask an LLM, and
how often; which files speak to a provider past the LLM object; what methods the LLM base class
has; and what the catalogued functions look like. `test_drift.py` compares with the baseline of the
version, and any difference fails until somebody has looked at it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Rule:
    """Where in one package its LLM calls are looked for.

    `base`: `module:Class` of the LLM base class, whose methods that take messages or a prompt are
    the names that are looked for; `names` are further ones, looked for as attributes, and `functions`
    others, looked for by themselves. `receivers`: what the text before the
    dot has to match. `under`: the folder or file the calls are looked for in. `providers`: files,
    as a pattern of their path, that may speak to a provider themselves.
    """

    package: str
    base: str = ""
    names: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    receivers: str = ""
    under: str = ""
    providers: str = r"$^"
    through: tuple[str, ...] = ()
    """What only hands a call on, and is no call site: a client's own methods, wrappers around it."""
    optional: bool = False
    """Whether the package need not be installed; what is not there has no calls."""


RULES: Mapping[str, tuple[Rule, ...]] = {
    "mem0": (Rule("mem0", base="mem0.llms.base:LLMBase", providers=r"llms/|proxy/main\.py"),),
    "memos": (
        Rule(
            "memos",
            base="memos.llms.base:BaseLLM",
            receivers=r"(llm|llms\[.*\]|llm_provider)$",
            providers=r"llms/|embedders/|reranker/",
        ),
    ),
    "evermemos": (
        Rule(
            "everalgo",
            base="everalgo.llm.protocols:LLMClient",
            receivers=r"(llm|client|_llm)$",
            providers=r"llm/",
            through=(
                "everalgo.knowledge._postprocess:_llm_text",
                "everalgo.llm.providers.openai_compat:OpenAICompatClient._chat_create",
            ),
        ),
        Rule(
            "everos",
            names=("chat",),
            receivers=r"(llm|client|_llm|_inner)$",
            providers=r"component/llm/",
            through=(
                "everos.component.llm.openai_provider:OpenAIProvider.chat",
                "everos.component.llm.client:_LoggingLLMClient.chat",
                "everos.component.llm._usage_client:UsageRecordingClient.chat",
            ),
        ),
    ),
    "hy-memory": (
        Rule(
            "hy_memory",
            base="hy_memory.agent.llm_provider:LLMProvider",
            names=("llm_call",),
            providers=r"agent/llm_provider\.py|server\.py",
            through=(
                "hy_memory.pipelines.system2_writer:System2Writer._get_llm_call._call",
                *(
                    f"hy_memory.agent.llm_provider:LLMProvider.{name}"
                    for name in (
                        *("chat", "complete", "complete_messages", "_call_llm", "_chat_completions"),
                        *("_call_openai", "_call_openai_messages"),
                        *("_call_eval_platform", "_call_eval_platform_messages"),
                    )
                ),
                "hy_memory.server:MemoryHTTPHandler._handle_healthz",  # by a client of its own
            ),
        ),
    ),
    "langchain": (
        Rule("langchain_classic", names=("predict", "apredict"), under="memory", optional=True),
        Rule("langchain", names=("predict", "apredict"), under="memory"),  # before 1.0
        Rule("langchain_community", names=("predict", "apredict"), under="memory", optional=True),
        Rule("langchain", names=("invoke", "ainvoke"), under="agents/middleware"),
        # Its calls are trustcall's: what shows is where it takes a model.
        Rule(
            "langmem",
            names=("bind_tools", "with_structured_output"),
            functions=("create_extractor", "init_chat_model"),
            optional=True,
        ),
        Rule("langmem", names=("invoke", "ainvoke"), receivers=r"model$", optional=True),
    ),
    "llama-index": (
        Rule(
            "llama_index.core",
            names=("chat", "achat", "complete", "acomplete", "predict", "apredict"),
            under="memory",
        ),
    ),
}

VERSION_OF = {"langchain": "langchain"}
"""Framework → the distribution whose version a baseline is for, where it is not the framework's own."""

PAST_THE_LLM = re.compile(
    r"completions\.(create|parse)|responses\.(create|parse)|litellm\.a?completion"
    r"|messages\.create|generate_content"
)
_TAKES = frozenset({"messages", "prompt", "prompts", "input", "text", "query"})


class Unreadable(Exception):
    """A file that this Python cannot parse: what is in it would be missed without a word."""


# -- scanning ------------------------------------------------------------------------------------


def root_of(package: str) -> Path:
    """The folder of an installed package, without importing it."""
    top, _, rest = package.partition(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed", name=top)
    folders = [Path(each).joinpath(*rest.split(".")) for each in spec.submodule_search_locations]
    return next(folder for folder in folders if folder.is_dir())


def parsed(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's escapes
            return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from None


def found_in(rule: Rule) -> dict[str, Any]:
    """What there is of one package now."""
    root = root_of(rule.package)
    methods = _public_methods(rule)
    names = {*rule.names, *(name for name, takes in methods.items() if takes)}
    calls: Counter[str] = Counter()
    past: dict[str, int] = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        if (count := len(PAST_THE_LLM.findall(text))) and not re.match(rule.providers, inside):
            past[inside] = count
        if not inside.startswith(rule.under) or not any(name in text for name in (*names, *rule.functions)):
            continue
        module = ".".join([rule.package, *path.relative_to(root).with_suffix("").parts])
        for qualname, name in _asked(parsed(path), names, rule):
            calls[f"{module}:{qualname} {name}"] += 1
    return {"methods": methods, "calls": dict(sorted(calls.items())), "past the LLM": past}


def _asked(tree: ast.AST, names: set[str], rule: Rule, inside: str = "") -> Iterator[tuple[str, str]]:
    """(enclosing function, name) of every attribute that is read, called or not: it may be handed
    to an executor."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _asked(node, names, rule, f"{inside}.{node.name}" if inside else node.name)
            continue
        if isinstance(node, ast.Attribute) and _is_asked(node, names, rule.receivers):
            yield inside, node.attr
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in rule.functions:
            yield inside, node.id
        yield from _asked(node, names, rule, inside)


def _is_asked(node: ast.Attribute, names: set[str], receivers: str) -> bool:
    named = node.attr in names and isinstance(node.ctx, ast.Load)
    return named and re.search(receivers, ast.unparse(node.value)) is not None


def _public_methods(rule: Rule) -> dict[str, bool]:
    """Public methods of the LLM base class → whether they take messages or a prompt."""
    if not rule.base:
        return {}
    cls = _definition(rule.base)
    if not isinstance(cls, ast.ClassDef):
        raise LookupError(f"there is no class {rule.base}")
    return {
        node.name: bool(_TAKES & {each.arg for each in (*node.args.args, *node.args.kwonlyargs)})
        for node in cls.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_")
    }


def _definition(where: str) -> ast.AST | None:
    """The class, function or assignment at `module:qualname`, followed through imports of the name;
    None where there is none."""
    module, _, qualname = where.partition(":")
    package, *rest = module.split(".")
    try:
        root = root_of(package)
    except ModuleNotFoundError:
        return None
    path = root.joinpath(*rest)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file():
        return None
    node: ast.AST = parsed(path)
    first, _, others = qualname.partition("[")[0].partition(".")
    imports = [each for each in ast.walk(node) if isinstance(each, ast.ImportFrom) and not each.level]
    for each in imports:
        if any((alias.asname or alias.name) == first for alias in each.names):
            return _definition(f"{each.module}:{first}{'.' + others if others else ''}")
    for name in filter(None, (first, *others.split("."))):
        inner = [each for each in _statements(node) if name in _names_of(each)]
        if not inner:
            return None
        node = inner[-1]
    return node


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Those of a body, and of the `try` and `if` in it."""
    for each in getattr(node, "body", []):
        if isinstance(each, (ast.Try, ast.If)):
            yield from _statements(each)
        else:
            yield each


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def digest_of(where: str) -> str | None:
    """Of the code at `module:qualname`, comments and docstrings aside; None where there is none.
    The same on every Python that parses it."""
    node = _definition(where)
    return None if node is None else hashlib.sha256(_written(node).encode()).hexdigest()[:16]


def _written(node: Any) -> str:
    """A node as text, with what newer Pythons add, and leave empty, left out."""
    if isinstance(node, list):
        return f"[{','.join(_written(each) for each in node)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Constant):
        return f"Constant({node.value!r})"
    fields = [(name, value) for name, value in ast.iter_fields(node) if value is not None and value != []]
    if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
        fields = [(name, value[1:] if name == "body" else value) for name, value in fields]
    return f"{type(node).__name__}({','.join(f'{name}={_written(value)}' for name, value in fields)})"


_WITH_DOCSTRING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


# -- the whole of a framework --------------------------------------------------------------------


def measure(framework: str, places: Iterable[str]) -> dict[str, Any]:
    """The baseline of a framework as it is installed. `places`: every `where` of its catalogue."""
    packages = {
        f"{rule.package}{'/' + rule.under if rule.under else ''} {','.join(rule.names)}".strip(): found_in(
            rule
        )
        for rule in RULES[framework]
        if not rule.optional or importlib.util.find_spec(rule.package) is not None
    }
    functions = {where: digest_of(where) for where in sorted(places)}  # None: not there, and that counts
    return {"packages": packages, "functions": functions}


def uncatalogued(found: Mapping[str, Any], places: Iterable[str]) -> list[str]:
    """Functions that ask an LLM and stand in no call site."""
    known = (*places, *(each for rules in RULES.values() for rule in rules for each in rule.through))
    asking = {call.rpartition(" ")[0] for each in found["packages"].values() for call in each["calls"]}
    return sorted(each for each in asking if not any(_within(each, where) for where in known))


def _within(function: str, where: str) -> bool:
    return function == where or function.startswith(where + ".")


def here(was: Any) -> Any:
    """Of a baseline, what there can be here: a package that is optional is not in every cell."""
    tops = {_top(key) for found in was.values() for key in found}
    gone = {name for name in tops if importlib.util.find_spec(name) is None}
    return {
        kind: {key: value for key, value in found.items() if _top(key) not in gone}
        for kind, found in was.items()
    }


def _top(key: str) -> str:
    return re.split(r"[./: ]", key, maxsplit=1)[0]


def together(was: Any, now: Any) -> Any:
    """A baseline with what there is now, and what another cell of the same version had."""
    gone = {key: value for key, value in now["functions"].items() if value is None}
    functions = {
        **gone,
        **was["functions"],
        **{key: now["functions"][key] for key in now["functions"].keys() - gone},
    }
    return {"packages": {**was["packages"], **now["packages"]}, "functions": dict(sorted(functions.items()))}


def differences(was: Any, now: Any, path: str = "") -> list[str]:
    """What has changed, one line each."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = sorted({*was, *now})
        return [line for key in keys for line in differences(was.get(key), now.get(key), f"{path} / {key}")]
    return [] if was == now else [f"{path.removeprefix(' / ')}: was {was}, is {now}"]
