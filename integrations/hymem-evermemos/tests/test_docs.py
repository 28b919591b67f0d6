"""What the page and the README tell people to write works as it stands there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import evermemos_bank as bank
import pytest
import tomllib

import hymem_evermemos

ROOT = Path(__file__).parents[3]
PAGES = [
    path for path in (ROOT / "docs/evermemos.md", Path(__file__).parents[1] / "README.md") if path.is_file()
]


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page, hymem_writer, hymem_main):
    hymem_writer.reply(None, bank.facts_reply("Lives in Oslo."))
    for block in blocks(page, "python"):
        text = block.replace("http://127.0.0.1:8100/v1", hymem_writer.base_url)
        text = text.replace("https://api.openai.com/v1", hymem_main.base_url)
        names = {}
        exec(compile(text, str(page), "exec"), names)
        (found,) = asyncio.run(names["extractor"].aextract_from_text("I live in Oslo.", timestamp=0))
        assert found.content == "Lives in Oslo."
        assert hymem_main.chats == []
        names["handle"].disable()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_table(page, hymem_writer, tmp_path, monkeypatch):
    """Read, and in force as soon as EverMemOS makes its client."""
    (block,) = blocks(page, "diff")
    text = "\n".join(line[1:] for line in block.splitlines())
    assert tomllib.loads(text)["llm"]
    (tmp_path / "everos.toml").write_text(text)
    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path))
    monkeypatch.setenv("EVEROS_CONFIG_FILE", str(tmp_path / "everos.toml"))
    hymem_evermemos.register()
    from hymem_evermemos.seams import INTEGRATION

    assert INTEGRATION.writer is None
    bank.client("gpt-5.4-mini", hymem_writer.base_url)
    assert INTEGRATION.writer.settings.base_url == "http://127.0.0.1:8100/v1"
    assert "[hy_memory]" in INTEGRATION.writer.settings.source("base_url")


def test_an_unknown_name_in_the_table_is_an_error(tmp_path, monkeypatch, hymem_writer):
    (tmp_path / "everos.toml").write_text('[hy_memory]\nbase_urll = "x"\n')
    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path))
    monkeypatch.setenv("EVEROS_CONFIG_FILE", str(tmp_path / "everos.toml"))
    hymem_evermemos.register()
    with pytest.raises(ValueError, match=r"base_urll.*\[hy_memory\].*base_url"):
        bank.client("m", hymem_writer.base_url)
