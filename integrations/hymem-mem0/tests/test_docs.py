"""What the page and the README tell people to write works as it stands there."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import mem0
import pytest
from mem0_bank import WRITES, script

import hymem_mem0

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
PAGES = [path for path in (ROOT / "docs/mem0.md", Path(__file__).parents[1] / "README.md") if path.is_file()]
THERE = "http://127.0.0.1:8000/v1"


def blocks(language):
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for at, block in enumerate(re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)):
            found.append(pytest.param(block, id=f"{page.name}-{at}"))
    return found


@pytest.fixture(autouse=True)
def users_own_provider(hymem_main, monkeypatch):
    """What `{"provider": "openai", "config": {"model": ...}}` finds in a user's environment."""
    monkeypatch.setenv("OPENAI_BASE_URL", hymem_main.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-users-key")


def load(language, text):
    if language == "json":
        return json.loads(text)
    if language == "toml":
        return tomllib.loads(text)
    return pytest.importorskip("yaml").safe_load(text)


@pytest.mark.parametrize(
    ("language", "block"),
    [
        pytest.param(name, *each.values, id=f"{name}-{each.id}")
        for name in ("json", "yaml", "toml")
        for each in blocks(name)
    ],
)
def test_a_configuration(language, block, config, hymem_writer, hymem_main):
    hymem_mem0.register()
    script(hymem_writer, "Lives in Oslo")
    written = load(language, block.replace(THERE, hymem_writer.base_url))
    memory = mem0.Memory.from_config({**config, **written})
    memory.add("I live in Oslo.", user_id="ann")
    assert len(hymem_writer.chats) == WRITES
    hymem_main.reply(None, "an answer")
    assert memory.llm.generate_response([{"role": "user", "content": "a question"}]) == "an answer"
    assert hymem_main.chats[0].json["model"] == "gpt-4.1-mini"


@pytest.mark.parametrize("block", blocks("python"))
def test_python(block, config, hymem_writer, monkeypatch, capsys):
    script(hymem_writer, "Lives in Oslo")
    real = mem0.Memory.from_config
    monkeypatch.setattr(mem0.Memory, "from_config", lambda given: real({**config, **given}))
    names = {"hymem_mem0": hymem_mem0}  # shown before, on the same page
    if "from_config" not in block:
        names["memory"] = real(config)
    exec(compile(block.replace(THERE, hymem_writer.base_url), "page", "exec"), names)
    assert len(hymem_writer.chats) == block.count(".add(") * WRITES


def test_the_variables(config, hymem_writer, monkeypatch):
    for block in blocks("sh"):
        for name, value in re.findall(r"^export (\w+)=(.*)$", block.values[0], re.MULTILINE):
            monkeypatch.setenv(name, value.replace(THERE, hymem_writer.base_url))
    assert "HYMEM_MEM0_BASE_URL" in os.environ
    hymem_mem0.register()
    memory = mem0.Memory.from_config({**config, "llm": {"provider": "hy_memory", "config": {}}})
    settings = memory.llm.writer.settings
    assert settings.base_url == hymem_writer.base_url
    assert settings.on_failure == "skip"


def test_the_diff_is_the_json():
    page = PAGES[0].read_text(encoding="utf-8")
    (diff,) = re.findall(r"^```diff\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    after = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] != "-")
    assert json.loads(after) == json.loads(blocks("json")[0].values[0])
