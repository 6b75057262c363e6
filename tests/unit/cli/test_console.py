import io
import sys

import pytest

from kai.cli.console import make_console


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("color", "environment", "colored"),
    [
        ("auto", {}, True),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"TERM": "dumb"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {}, False),
    ],
)
def test_a_terminal_gets_colour_unless_somebody_minds(color, environment, colored, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    console = make_console(output="table", color=color, ascii_only=False, quiet=False, verbose=0)
    assert console.color is colored
    assert console.styled("x", fg="red") == ("\x1b[31mx\x1b[0m" if colored else "x")


def test_a_stream_that_cannot_say_it_gets_ascii(monkeypatch):
    class Latin(io.StringIO):
        encoding = "latin-1"

    stream = Latin()
    monkeypatch.setattr(sys, "stdout", stream)
    make_console(output="table", color="auto", ascii_only=False, quiet=False, verbose=0).write("├─ █▓░◆»")
    assert stream.getvalue() == "|- #%.*>\n"


def test_talk_goes_to_standard_error_unless_quiet(capsys):
    make_console(output="table", color="auto", ascii_only=False, quiet=False, verbose=1).talk("a", level=1)
    make_console(output="table", color="auto", ascii_only=False, quiet=False, verbose=0).talk("b", level=1)
    make_console(output="table", color="auto", ascii_only=False, quiet=True, verbose=2).talk("c")
    assert capsys.readouterr() == ("", "a\n")
