import io

from kai.cli.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream: io.StringIO, *, quiet: bool = False) -> str:
    line = ProgressLine(quiet=quiet, stream=stream)
    for done in range(3):
        line.show("compiling kernels", done, 2)
    line.show("reading", 0, 1)
    return stream.getvalue()


def test_a_file_gets_one_line_for_each_kind_of_work():
    assert shown(io.StringIO()) == "compiling kernels ...\nreading ...\n"


def test_a_terminal_gets_a_count_that_is_written_over():
    counts = [f"\rcompiling kernels: {done} of 2" for done in range(3)]
    assert shown(Terminal()) == "".join(counts) + "\n" + "\rreading: 0 of 1"


def test_nothing_is_shown_to_a_user_who_asked_for_silence():
    assert shown(Terminal(), quiet=True) == ""
