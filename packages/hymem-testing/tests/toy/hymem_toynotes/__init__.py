"""An integration as it should be, for the smallest of frameworks."""

import os


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
    from .seams import INTEGRATION

    return INTEGRATION.attach(notebook, None, settings)


def disable():
    from .seams import INTEGRATION

    INTEGRATION.disable()


WITHOUT_THE_ADAPTER = (
    *("the_name_is_known_to_nobody", "enabling_waits_for_a_line_of_code", "running_routes_nothing"),
    *("a_seam_that_is_not_there_is_passed_over", "a_question_is_a_write", "there_is_no_probe"),
)
if os.environ.get("TOYNOTES_WRONG") in WITHOUT_THE_ADAPTER:  # it is hymem that imports this first
    from wrong import be_wrong

    be_wrong()
