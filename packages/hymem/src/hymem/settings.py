"""What a writer is told: its settings, and where each value came from.

Nearest wins: arguments, then `HYMEM_<FRAMEWORK>_*`, then `HYMEM_*`, then the framework's own file
where it has room for them, then the TOML file named by `HYMEM_CONFIG`, then the defaults below.
pydantic-settings is not used: it ignores an unknown `HYMEM_MAX_TOKNES` and a missing file in
silence, and both must be errors here.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)

from .errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NO_KEY = "EMPTY"
"""What vLLM's documentation sends as the key of a server that was started without one."""

FRAMEWORKS = ("mem0", "memos", "evermemos", "hy-memory", "langchain", "llama-index")

_PREFIX = "HYMEM_"
_NOT_SETTINGS = frozenset({"HYMEM_ENABLE", "HYMEM_AUTOLOAD", "HYMEM_CONFIG"})
RESERVED_BODY = frozenset(
    {"model", "messages", "stream", "stream_options", "temperature", "max_tokens"}
    | {"max_completion_tokens", "reasoning_effort"}
)


class WriterSettings(BaseModel):
    """The settings of one writer. Frozen; an unknown name is an error.

    Build it with `load_settings` to have environment and file taken into account.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: str = Field(default="http://127.0.0.1:8000/v1")
    """Where the writer's OpenAI-compatible API is, up to and including `/v1`."""
    api_key: SecretStr = Field(default=SecretStr(NO_KEY))
    model: str = Field(default="hy-memory", min_length=1)
    """The served model name (`vllm serve --served-model-name`)."""
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Further headers for the writer's server, for gateways that ask for some."""
    extra_body: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of the request's body. May not set what the other settings set."""
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    max_tokens: int = Field(default=4096, ge=1)
    """Tokens a reply may have where the contract is JSON, whatever the framework asks for."""
    max_tokens_if_cut: int = Field(default=8192, ge=1)
    """Tokens for the one further request that is made when a reply was cut."""
    reasoning_effort: Literal["no_think", "low", "high"] | None = Field(default="no_think")
    """Sent in `chat_template_kwargs`, never at the top level, where vLLM refuses `no_think`
    and lets any other value win over the template's. None sends nothing."""
    structured_output: Literal["never", "on_violation", "always"] = Field(default="on_violation")
    """When a `json_schema` is sent: never, on the one recovery request, or from the first."""
    timeout: float = Field(default=120.0, gt=0.0, allow_inf_nan=False)
    """Seconds for all of one write: queue, attempts, backoff and recovery together."""
    on_failure: Literal["raise", "skip", "fallback"] = Field(default="raise")
    max_connections: int = Field(default=32, ge=1)
    """Connections to the server, per endpoint and process."""
    record: Path | None = Field(default=None)
    """A directory to keep the write events in as JSON lines, one file per process."""
    record_content: bool = Field(default=False)
    """Whether the record also keeps prompts and replies."""

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _is_an_api_root(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected an http:// or https:// address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password:
            raise ValueError("has a user name or password in it; put the key in api_key or headers")
        if parts.query or parts.fragment:
            raise ValueError("has a query or fragment; put a key in api_key or headers")
        if parts.path.rstrip("/").endswith("/chat/completions"):
            raise ValueError("goes past the API root; end it with /v1")
        return value.rstrip("/")

    @field_validator("api_key")
    @classmethod
    def _can_be_sent(cls, value: SecretStr) -> SecretStr:
        return SecretStr(_header_value(value))

    @field_validator("headers")
    @classmethod
    def _can_all_be_sent(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        return {name: SecretStr(_header_value(each)) for name, each in value.items()}

    @field_validator("extra_body")
    @classmethod
    def _adds_only(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if taken := sorted(RESERVED_BODY & set(value)):
            raise ValueError(f"may not set {', '.join(taken)}; use the setting of that name")
        kwargs = value.get("chat_template_kwargs", {})
        if not isinstance(kwargs, Mapping):
            raise ValueError("chat_template_kwargs has to be a table")
        if kwargs.get("reasoning_effort", "no_think") != "no_think":
            raise ValueError("may not set reasoning_effort; use the setting of that name")
        if "reasoning_effort" in kwargs:  # as the model card has people write it; it is sent anyway
            rest = {name: each for name, each in kwargs.items() if name != "reasoning_effort"}
            return {**value, "chat_template_kwargs": rest}
        return value

    @field_validator("record")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("expected an absolute path of a directory")
        return value

    def source(self, name: str) -> str:
        """Where the value of setting `name` came from: `argument`, the environment variable, the
        file, or `default`."""
        default = "argument" if name in self.model_fields_set else "default"
        return self._sources.get(name, default)

    @property
    def sets_max_tokens(self) -> bool:
        """Whether somebody set `max_tokens`: then it holds for free text, too."""
        return self.source("max_tokens") != "default"

    def __eq__(self, other: object) -> bool:
        # What a writer does depends on the values, and on whether max_tokens was set at all, but
        # not on where they came from.
        if not isinstance(other, WriterSettings):
            return NotImplemented
        return self.__dict__ == other.__dict__ and self.sets_max_tokens == other.sets_max_tokens

    def __hash__(self) -> int:
        return hash((self.base_url, self.model))


def _header_value(secret: SecretStr) -> str:
    """A header's value without the newline that reading it from a file leaves."""
    value = secret.get_secret_value().strip()
    if not (value.isascii() and value.isprintable()):
        raise ValueError("has characters that no header can carry")
    return value


_NAMES = tuple(WriterSettings.model_fields)

Table = tuple[Mapping[str, Any], str]


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    *,
    framework: str | None = None,
    environ: Mapping[str, str] | None = None,
    where: str = "argument",
    table: Table | None = None,
) -> WriterSettings:
    """Settings from arguments, environment, file and defaults, nearest first.

    `framework` is one of `FRAMEWORKS` (either spelling of its hyphen) and brings
    `HYMEM_<FRAMEWORK>_*` and the file's table of that name into play. `where` names the place
    the arguments stand in, for error messages (a framework's own configuration key, say). `table`:
    settings in a file of the framework, which the environment overrides, and the name of that place.
    Raises `SettingsError` for an unknown name, a bad value, or a file that cannot be read.
    """
    environ = os.environ if environ is None else environ
    framework = None if framework is None else framework.lower().replace("_", "-")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = [
        *_file_layers(environ.get("HYMEM_CONFIG"), framework),
        *([] if table is None else [((name, value, table[1]) for name, value in table[0].items())]),
        *_environment_layers(environ, framework),
        ((name, value, where) for name, value in (arguments or {}).items()),
    ]
    for layer in layers:
        for name, value, source in layer:
            if name not in _NAMES:
                raise SettingsError(f"unknown setting {name!r} ({source}){_nearest(name, _NAMES)}")
            values[name] = value
            sources[name] = source
    try:
        settings = WriterSettings(**values)
    except ValidationError as error:
        problems = "; ".join(_problem(details, sources) for details in error.errors(include_input=False))
    else:
        settings._sources.update(sources)
        return settings
    # Outside the `except`: pydantic's error holds the values, a mistyped key among them.
    raise SettingsError(problems)


def _problem(details: Any, sources: Mapping[str, str]) -> str:
    name = str(details["loc"][0]) if details["loc"] else "settings"
    message = str(details["msg"]).removeprefix("Value error, ")
    return f"setting {name!r} ({sources.get(name, 'default')}): {message}"


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"


Layer = Iterator[tuple[str, Any, str]]


def _environment_layers(environ: Mapping[str, str], framework: str | None) -> list[Layer]:
    plain: dict[str, str] = {}
    own: dict[str, str] = {}
    for variable in environ:
        if not variable.startswith(_PREFIX) or variable in _NOT_SETTINGS:
            continue
        owner, name = _split(variable.removeprefix(_PREFIX))
        if owner == "":
            plain[name] = variable
        elif owner == framework:
            own[name] = variable
    return [
        ((name, _parsed(name, environ[variable], variable), variable) for name, variable in found.items())
        for found in (plain, own)
    ]


def _split(rest: str) -> tuple[str, str]:
    """`MEM0_MAX_TOKENS` → (`mem0`, `max_tokens`). A variable of nobody's is an error, unless it
    plainly belongs to an integration that is not in use here, or to the test kit."""
    lower = rest.lower()
    if lower in _NAMES:
        return "", lower
    for framework in FRAMEWORKS:
        prefix = framework.replace("-", "_") + "_"
        if lower.startswith(prefix):
            name = lower.removeprefix(prefix)
            if name in _NAMES:
                return framework, name
            known = tuple(_PREFIX + prefix.upper() + each.upper() for each in _NAMES)
            raise SettingsError(f"unknown variable {_PREFIX + rest!r}{_nearest(_PREFIX + rest, known)}")
    if lower.startswith("test_"):
        return "test", lower
    for name in _NAMES:
        owner = lower.removesuffix("_" + name)
        if owner != lower and not difflib.get_close_matches(
            owner.replace("_", "-"), FRAMEWORKS, n=1, cutoff=0.7
        ):
            return owner, name
    known = tuple(_PREFIX + each.upper() for each in _NAMES) + tuple(sorted(_NOT_SETTINGS))
    raise SettingsError(f"unknown variable {_PREFIX + rest!r}{_nearest(_PREFIX + rest, known)}")


def _parsed(name: str, text: str, variable: str) -> Any:
    """The value of an environment variable as the setting's type wants it."""
    if name in ("headers", "extra_body"):
        try:
            return json.loads(text)
        except ValueError:
            pass
        raise SettingsError(f"{variable} has to be a JSON object")
    if name in ("reasoning_effort", "record") and text.lower() in ("", "none", "off"):
        return None
    return text


def _file_layers(named: str | None, framework: str | None) -> list[Layer]:
    if not named:
        return []
    path = Path(named)
    if not path.is_absolute():
        raise SettingsError(f"HYMEM_CONFIG has to be an absolute path, found {named!r}")
    table: dict[str, Any] | None = None
    problem = ""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"cannot read {named}: {error.strerror}"
    except UnicodeDecodeError:
        problem = f"{named} is not UTF-8"
    except ValueError as error:
        problem = f"{named} is not TOML: {error}"
    if table is None:  # outside the `except`: a decoding error holds the file, a key in it
        raise SettingsError(f"HYMEM_CONFIG: {problem}")
    plain: list[tuple[str, Any, str]] = []
    own: list[tuple[str, Any, str]] = []
    for key, value in table.items():
        owner = key.lower().replace("_", "-")
        if owner in FRAMEWORKS:
            if not isinstance(value, dict):
                raise SettingsError(f"{named}: [{key}] has to be a table")
            if owner == framework:
                own = [(name, inner, f"{named} [{key}]") for name, inner in value.items()]
        elif isinstance(value, dict) and key not in ("headers", "extra_body"):
            raise SettingsError(f"{named}: unknown table [{key}]{_nearest(owner, FRAMEWORKS)}")
        else:
            plain.append((key, value, named))
    return [iter(plain), iter(own)]
