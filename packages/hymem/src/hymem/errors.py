"""Every error hymem raises. None derives from `RuntimeError`, so that a framework's own
`except RuntimeError` cannot swallow one by accident.

Messages say what was found, what was expected and what to do. They never carry a key, a prompt
or a reply: those may be private, and exceptions travel into logs and traces.
"""


class HymemError(Exception):
    """Base of all errors of hymem and its integrations."""


class SettingsError(HymemError, ValueError):
    """A setting is unknown, malformed or contradicts another one."""


class UnsupportedVersion(HymemError):
    """The framework, or one of our own packages, is in a version this integration cannot route."""


class SeamMissing(HymemError):
    """A place in the framework that the integration needs is not where it should be.

    `missing` lists every such place; nothing in the framework has been changed.
    """

    def __init__(self, message: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class WriteError(HymemError):
    """A write did not come about. `site` is the id of the call site it was made for."""

    site: str = ""


class WriterUnavailable(WriteError):
    """The writer's server could not be reached, was too slow, or refused the request.

    `status` is the HTTP status, or None when no answer came; `kind` is one of `connect`,
    `broken`, `timeout`, `busy`, `status`, `too_large`, `resting`, `not_a_reply`, `unencodable`,
    `no_client`.
    """

    def __init__(self, message: str, *, kind: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class PromptTooLong(WriteError):
    """The prompt leaves the writer no room for a reply.

    `prompt_tokens` and `max_model_len` are in tokens; None where the server did not say.
    """

    def __init__(
        self, message: str, *, prompt_tokens: int | None = None, max_model_len: int | None = None
    ) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.max_model_len = max_model_len


class ReplyRejected(WriteError):
    """The writer answered, but not with anything the framework's parser could be given.

    `path` and `expected` name the place in the reply and the shape that was wanted there.
    """

    def __init__(self, message: str, *, path: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.expected = expected


class NoMainModel(HymemError):
    """A call that is not a write reached an object that has only a writer.

    Raised instead of sending it to the writer: hy-memory is trained to write memory, not to
    answer, caption or rerank.
    """
