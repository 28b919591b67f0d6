"""What the page and the README tell people to write works as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hymem_memos

ROOT = Path(__file__).parents[3]
PAGES = [path for path in (ROOT / "docs/memos.md", Path(__file__).parents[1] / "README.md") if path.is_file()]


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def with_placeholders(text, writer, main):
    text = text.replace("http://127.0.0.1:8000/v1", writer.base_url).replace("sk-...", "sk-users-key")
    return text.replace('"gpt-5.4-mini"', f'"{main.model}"')


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page, hymem_writer, hymem_main):
    hymem_writer.reply(None, "Lives in Oslo.")
    for block in blocks(page, "python"):
        names = {}
        exec(compile(with_placeholders(block, hymem_writer, hymem_main), str(page), "exec"), names)
        assert names["writer"].generate([{"role": "user", "content": "x"}]) == "Lives in Oslo."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations(page, hymem_writer, hymem_main):
    """Whole ones, and the lines that are added."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    hymem_memos.register()
    added = [line for block in blocks(page, "diff") for line in block.splitlines() if line.startswith("+")]
    found = [f"{{{line.lstrip('+ ')}}}" for line in added] + blocks(page, "json")
    for text in found:
        given = json.loads(with_placeholders(text, hymem_writer, hymem_main))
        llm = LLMFactory.from_config(LLMConfigFactory.model_validate(given.get("llm", given)))
        assert type(llm) is hymem_memos.HyMemoryLLM
        assert llm.writer.settings.base_url == hymem_writer.base_url
    assert found
