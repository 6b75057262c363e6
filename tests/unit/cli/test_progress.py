import io

import pytest

from kai.cli.console import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream: io.StringIO, *, quiet: bool = False) -> str:
    line = ProgressLine(quiet=quiet, stream=stream)
    for done in range(3):
        line.show("compiling kernels", done, 2)
    line.show("reading", 0, 1)
    return stream.getvalue()


def test_a_file_gets_one_line_per_kind_of_work():
    assert shown(io.StringIO()) == "compiling kernels ...\nreading ...\n"


def test_a_terminal_gets_a_count_that_is_written_over():
    counts = [f"\rcompiling kernels: {done} of 2" for done in range(3)]
    assert shown(Terminal()) == "".join(counts) + "\n" + "\rreading: 0 of 1"


def test_quiet_shows_no_progress_even_on_a_terminal():
    assert shown(Terminal(), quiet=True) == ""


def bar_of(stream: io.StringIO, *, plain: bool = False, quiet: bool = False) -> list[str]:
    """Return what is written while a run of two hours takes ten seconds."""
    times = iter([0.0, 0.5, 2.0, 5.0])
    line = ProgressLine(quiet=quiet, plain=plain, stream=stream, clock=lambda: next(times))
    for done, detail in ((0, "T+0s of 2h, 0 jobs ended"), (200, "T+24m of 2h, 1 job ended"), (500, "T+1h of 2h")):
        line.show("simulating lab", done, 1000, detail)
    line.show("simulating lab", 1000, 1000, "")
    return stream.getvalue().split("\r")


def test_a_run_draws_a_bar_with_estimate_then_erases(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, first, second, third, erased, end = bar_of(Terminal())
    assert first == "simulating lab  ░░░░░░░░░░░░░░░░░░░░   0%  T+0s of 2h, 0 jobs ended"
    assert second == "simulating lab  ████░░░░░░░░░░░░░░░░  20%  about 8s left, T+24m of 2h, 1 job ended"
    assert third.rstrip() == "simulating lab  ██████████░░░░░░░░░░  50%  about 5s left, T+1h of 2h"
    assert len(third) == len(second)  # nothing of a longer bar is left beside it
    assert (erased.strip(), end) == ("", "")


def test_a_bar_fits_the_terminal_and_may_be_ascii(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    bars = bar_of(Terminal(), plain=True)
    assert max(map(len, bars)) < 60
    assert bars[2].startswith("simulating lab  ####................  20%  about 8s left")


def test_work_that_ends_soon_draws_no_bar():
    stream = Terminal()
    times = iter([0.0, 0.0, 0.1, 0.2])
    line = ProgressLine(stream=stream, clock=lambda: next(times))
    for done in range(3):
        line.show("trying changes", done, 3, f"{done} tried")
    line.show("trying changes", 3, 3, "")
    line.close()
    assert stream.getvalue() == ""


def test_closing_a_progress_line_erases_its_bar_once():
    stream = Terminal()
    times = iter([0.0, 2.0])
    line = ProgressLine(stream=stream, clock=lambda: next(times))
    line.show("trying changes", 1, 3, "1 tried")
    drawn = stream.getvalue()
    line.close()
    assert stream.getvalue() == f"{drawn}\r{' ' * len(drawn.strip())}\r"
    line.close()
    assert stream.getvalue().count("\r") == 3


def test_only_an_unquiet_terminal_gets_a_bar():
    assert bar_of(io.StringIO()) == [""]
    assert bar_of(Terminal(), quiet=True) == [""]
