"""What the page and the README tell people to write works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    path for path in (ROOT / "docs/llama-index.md", Path(__file__).parents[1] / "README.md") if path.is_file()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page, hymem_writer):
    hymem_writer.reply(None, "Lives in Oslo.")
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        names = {}
        code = block.replace("http://127.0.0.1:8000/v1", hymem_writer.base_url)
        exec(compile(code, str(page), "exec"), names)
        assert names["writer"].complete("x").text == "Lives in Oslo."
