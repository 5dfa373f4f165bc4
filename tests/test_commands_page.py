"""The reference of commands is that of the commands as they are."""

from __future__ import annotations

from commands_page import PAGE, page


def test_the_reference_of_commands_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/commands_page.py"
