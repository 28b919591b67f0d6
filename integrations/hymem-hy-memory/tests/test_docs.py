"""What the page and the README tell people to write works as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hy_memory_bank as bank
import pytest

import hymem_hy_memory
from hymem.frameworks import enabled_by
from hymem.settings import load_settings

ROOT = Path(__file__).parents[3]
PAGES = [
    path for path in (ROOT / "docs/hy-memory.md", Path(__file__).parents[1] / "README.md") if path.is_file()
]
OSLO = "The user lives in Oslo."


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page, hymem_writer, hymem_main, monkeypatch, tmp_path):
    """The main model's address is another's here, and embeddings are had from it."""
    bank.script(hymem_writer, OSLO)
    for name, value in (("BASE_URL", hymem_main.base_url), ("API_KEY", bank.USERS_KEY)):
        monkeypatch.setenv(f"MEMORY_EMBEDDER_{name}", value)
    monkeypatch.setenv("MEMORY_EMBEDDING_DIMS", str(bank.DIMENSIONS))
    monkeypatch.setenv("MEMORY_DATA_DIR", str(tmp_path))
    for block in blocks(page, "python"):
        text = block.replace("http://127.0.0.1:8000/v1", hymem_writer.base_url)
        text = text.replace("https://api.openai.com/v1", hymem_main.base_url)
        names = {}
        exec(compile(text, str(page), "exec"), names)
        assert bank.facts(names["client"]) == [OSLO]
        assert hymem_main.chats == []
        names["handle"].disable()
        names["client"].close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_section(page):
    from hy_memory.config import MemoryConfig

    from hymem_hy_memory.seams import SECTIONS, sections_count

    (block,) = blocks(page, "diff")
    given = json.loads("\n".join(line[1:] for line in block.splitlines()))
    with hymem_hy_memory.register():
        config = MemoryConfig.from_dict(given)
        writer, _ = SECTIONS.get(config)
        assert writer.settings.base_url == "http://127.0.0.1:8000/v1"
        assert sections_count()
        assert config.llm.model == "gpt-4.1-mini"
    assert not sections_count()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_environment(page):
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    environ = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
    assert enabled_by(environ) == {"hy-memory"}
    assert load_settings(framework="hy-memory", environ=environ).base_url == "http://127.0.0.1:8000/v1"
