"""What the toy's parser takes."""

from __future__ import annotations

from hymem.contract import text_list

NOTES = text_list("notes", "notes")
