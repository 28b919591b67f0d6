"""An integration whose import does work."""

from hymem_toynotes import attach, disable, enable, register

import hymem.writer

__all__ = ["attach", "disable", "enable", "hymem", "register"]
