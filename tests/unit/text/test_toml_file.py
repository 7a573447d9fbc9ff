"""A text that is no TOML is named with its line, whatever the parser raises."""

from __future__ import annotations

import pytest

from claudeops.text.toml_file import TomlFault, TomlFile

LONG = "9" * 5_000  # int() reads up to 4,300 digits


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"a = 1\nb = {LONG}\n", 2),
        (f"a = 1234\n[[b]]\nc = [\n 1,\n -{'1_0' * 3_000},\n]\n", 5),
        (f"a = {LONG}", 1),
    ],
)
def test_a_whole_number_that_python_does_not_read_is_a_fault_of_its_line(text: str, line: int) -> None:
    with pytest.raises(TomlFault) as caught:
        TomlFile(text, what="a file")
    assert (caught.value.line, "more digits than can be read: write a shorter one" in str(caught.value)) == (line, True)


def test_what_breaks_off_is_a_fault_of_its_last_line() -> None:
    with pytest.raises(TomlFault) as caught:
        TomlFile("a = [\n1,\n", what="a file")
    assert caught.value.line == 3
