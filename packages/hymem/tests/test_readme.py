"""What the README shows runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_few_lines_of_the_readme(hymem_writer, monkeypatch, capsys):
    hymem_writer.reply(None, '{"memories": ["Lives in Oslo"]}')
    monkeypatch.setenv("HYMEM_BASE_URL", hymem_writer.base_url)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.strip()
    sent = hymem_writer.chats[0]
    assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}


def test_every_setting_is_in_the_table():
    from hymem import WriterSettings

    text = README.read_text(encoding="utf-8")
    assert [name for name in WriterSettings.model_fields if f"`{name}`" not in text] == []
