import gc
import json

import attrs
import pytest

from kai.basics.errors import UnreachableError
from kai.cli.console import Console
from kai.cli.sources import Source
from kai.cli.views import Watching, Ways, _fitted, show

NODE = {"apiVersion": "v1", "kind": "Node", "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}}


@attrs.frozen
class Count:
    """How many nodes there are."""

    count: int
    kind: str = "Count"

    def fields(self):
        return {"count": self.count}

    def names(self):
        return [f"count/{self.count}"]

    def text(self, console):
        return f"{self.count} nodes"


def count(result):
    return Count(len(result.case.objects.nodes))


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({**NODE, "metadata": {"name": "n0"}}))
    return path


def watching(place, *numbers):
    """Watch a file that has so many nodes, one after the other."""
    left = list(numbers)

    def pause(_):
        items = [{**NODE, "metadata": {"name": f"n{at}"}} for at in range(left.pop(0))]
        place.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    return Watching(pause=pause, goes_on=lambda: bool(left))


@pytest.mark.parametrize(
    ("output", "text"),
    [("table", "1 nodes\n"), ("name", "count/1\n"), ("json", '"kind": "Count"'), ("yaml", "count: 1")],
)
def test_a_view_is_written_in_the_requested_format(place, capsys, output, text):
    assert show(Source(place=str(place)), Console(output=output), Ways(decided=count)) == 0
    assert text in capsys.readouterr().out


def test_a_watch_writes_again_where_something_changed(place, capsys):
    show(Source(place=str(place), watch=True), Console(), Ways(decided=count), watching=watching(place, 1, 2, 2, 3, 3))
    assert capsys.readouterr().out == "1 nodes\n2 nodes\n3 nodes\n"


def test_a_watch_for_machines_is_one_document_a_line(place, capsys):
    show(
        Source(place=str(place), watch=True),
        Console(output="json"),
        Ways(decided=count),
        watching=watching(place, 2, 2, 2),
    )
    assert [json.loads(line)["count"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_a_watch_redraws_a_terminal(place, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show(Source(place=str(place), watch=True), Console(), Ways(decided=count), watching=watching(place, 2, 2))
    assert capsys.readouterr().out == "\x1b[H\x1b[J1 nodes\n\x1b[H\x1b[J2 nodes\n"


@attrs.frozen
class Rows:
    """As many rows as there are nodes, under a head."""

    count: int
    kind: str = "Rows"

    def text(self, console):
        return "\n".join(["HEAD", *(f"row {at}" for at in range(self.count))])


@pytest.mark.parametrize(
    ("lines", "count", "last"),
    [(24, 22, "row 21"), (24, 23, "… 2 more rows"), (24, 100, "… 79 more rows"), (50, 100, "… 53 more rows")],
)
def test_a_watch_shows_what_fits_on_the_screen(place, capsys, monkeypatch, lines, count, last):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setenv("COLUMNS", "80")
    show(
        Source(place=str(place), watch=True),
        Console(),
        Ways(decided=lambda result: Rows(len(result.case.objects.nodes))),
        watching=watching(place, count, count),
    )
    drawn = capsys.readouterr().out.split("\x1b[H\x1b[J")[-1].splitlines()
    assert (drawn[0], drawn[-1]) == ("HEAD", last)
    assert len(drawn) == min(count + 1, lines - 1)


def test_wrapped_lines_and_the_footer_count_as_screen_lines(monkeypatch):
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "20")
    text = "\n".join("x" * 30 for _ in range(9))
    assert _fitted(text, "").splitlines() == ["x" * 30] * 4 + ["… 5 more rows"]
    assert _fitted(text, "y" * 50).splitlines() == ["x" * 30] * 2 + ["… 7 more rows"]
    assert _fitted("a\nb", "y") == "a\nb"


def test_a_watch_survives_a_cluster_that_is_briefly_unreachable(place, capsys, monkeypatch):
    read = Source.read
    away = iter([False, True, False])

    def read_or_fail(source):
        if next(away):
            raise UnreachableError("cannot reach the cluster")
        return read(source)

    monkeypatch.setattr(Source, "read", read_or_fail)
    show(Source(place=str(place), watch=True), Console(), Ways(decided=count), watching=watching(place, 1, 2, 2))
    captured = capsys.readouterr()
    assert captured.out == "1 nodes\n2 nodes\n"
    assert captured.err == "error: cannot reach the cluster\n"


def test_a_first_look_that_fails_is_an_answer(place, monkeypatch):
    def fail(_):
        raise UnreachableError("cannot reach the cluster")

    monkeypatch.setattr(Source, "read", fail)
    with pytest.raises(UnreachableError):
        show(Source(place=str(place), watch=True), Console(), Ways(decided=count))


def test_the_collector_rests_for_one_look(place, capsys):
    seen = []

    def look(result):
        seen.append(gc.isenabled())
        return count(result)

    assert show(Source(place=str(place)), Console(), Ways(decided=look)) == 0
    assert (seen, gc.isenabled(), capsys.readouterr().out) == ([False], True, "1 nodes\n")


@pytest.mark.parametrize("output", ["table", "name", "json"])
def test_what_is_not_written_is_not_made(place, monkeypatch, output):
    made = []
    for name in ("fields", "names", "text"):
        form = getattr(Count, name)
        monkeypatch.setattr(Count, name, lambda *given, name=name, form=form: [made.append(name), form(*given)][1])
    show(Source(place=str(place)), Console(output=output), Ways(decided=count))
    assert made == [{"table": "text", "name": "names", "json": "fields"}[output]]
