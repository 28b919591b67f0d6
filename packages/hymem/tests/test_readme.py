"""What the README shows runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_few_lines_of_the_readme(hymem_writer, monkeypatch, capsys):
    # The small model behind the test's server needs what the real one does not.
    monkeypatch.setenv("HYMEM_BASE_URL", hymem_writer.base_url)
    monkeypatch.setenv("HYMEM_STRUCTURED_OUTPUT", "always")
    monkeypatch.setenv("HYMEM_MAX_TOKENS", "400")
    monkeypatch.setenv("HYMEM_MAX_TOKENS_IF_CUT", "800")
    monkeypatch.setenv("HYMEM_EXTRA_BODY", '{"repetition_penalty": 1.05}')
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.strip()
    sent = hymem_writer.chats[0]
    assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}


def test_every_setting_is_in_the_table():
    from hymem import WriterSettings

    text = README.read_text(encoding="utf-8")
    assert [name for name in WriterSettings.model_fields if f"`{name}`" not in text] == []
