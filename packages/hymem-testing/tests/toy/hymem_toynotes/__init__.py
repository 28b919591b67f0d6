"""An integration as it should be, for the smallest of frameworks."""


def __getattr__(name):
    if name != "CALL_SITES":
        raise AttributeError(f"module 'hymem_toynotes' has no attribute {name!r}")
    from .call_sites import CALL_SITES

    return CALL_SITES


def __dir__():
    return sorted({*globals(), "CALL_SITES"})


def register():
    from .seams import INTEGRATION

    return INTEGRATION.register()


def enable(*, replace=False, **settings):
    from .seams import INTEGRATION

    return INTEGRATION.enable(settings, replace=replace)


def attach(notebook, **settings):
    from hymem import Writer

    from .seams import INTEGRATION

    return INTEGRATION.attach(notebook, Writer(framework="toynotes", **settings))


def disable():
    from .seams import INTEGRATION

    INTEGRATION.disable()
