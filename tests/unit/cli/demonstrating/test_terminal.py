import os

import pytest

from kai.cli.demonstrating.playing import DOWN, ESCAPE, UP, Terminal


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"+q", ["+", "q"]),
        (b"....", [".", ".", ".", "."]),
        (b"\x1b[B\x1b[B\x1b[A", [DOWN, DOWN, UP]),
        (b"\x1bOAj", [UP, "j"]),
        (b"\x1b", [ESCAPE]),
        (b"\x1b[1;5Cq", ["\x1b[1;5C", "q"]),
    ],
)
def test_keys_that_come_together_are_taken_one_by_one(typed, keys):
    reading, writing = os.pipe()
    try:
        os.write(writing, typed)
        terminal = Terminal(console=None, keyboard=reading)
        assert [terminal.wait(0.0) for _ in (*keys, "no more")] == [*keys, ""]
    finally:
        os.close(reading)
        os.close(writing)
