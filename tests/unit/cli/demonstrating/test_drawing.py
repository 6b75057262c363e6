import attrs
import pytest

from kai.cli.console import Console
from kai.cli.demonstrating.drawing import Frame, drawn, line_text
from kai.cli.demonstrating.happenings import EVICTED, Line
from kai.cli.demonstrating.picture import Gpu, JobShown, NodeShown, Picture, QueueShown
from kai.cli.tables import shown_width


def queue(name, depth=1, **changes):
    values = {"leaf": True, "quota": 8.0, "limit": None, "fair": 8.0, "used": 4.0, "wanted": 12.0, "waits": 2}
    return QueueShown(name=name, depth=depth, **{**values, **changes})


def frame(**changes):
    cells = (Gpu("red", ""), Gpu("red", "going"), Gpu("red", "", is_shared=True), Gpu("", "idle"))
    picture = Picture(
        at=3605.0,
        cycle=7,
        capacity=16.0,
        used=4.0,
        queues=(queue("all", 0, leaf=False), queue("blue"), queue("red")),
        nodes=tuple(NodeShown(name=f"gpu-{at}", cells=(*cells, Gpu("blue", "promised"))) for at in range(1, 5)),
        jobs=tuple(
            JobShown(key=f"x/{name}", name=name, queue="red", gpus=8, pods=2, running=0, text="no room " * 30)
            for name in ("first", "second", "third")
        ),
        upcoming="first ends in 5m",
    )
    lines = (
        Line(at=0.0, subject="blue", sign="+", text="arrives"),
        Line(at=3600.0, subject="red", sign=EVICTED, text="2 pods evicted for blue from gpu-1"),
        Line(at=3600.0, subject="", sign=" ", text="red used 4 GPUs, fair share 2"),
    )
    return Frame(**{"title": "reclaim", "picture": picture, "lines": lines, "pace": 60.0, **changes})


@pytest.mark.parametrize(("columns", "rows"), [(60, 20), (80, 24), (120, 40), (200, 60)])
def test_a_screen_is_filled_and_never_overflown(columns, rows):
    found = drawn(frame(), Console(), columns, rows)
    assert len(found) == rows
    assert max(map(shown_width, found)) <= columns
    assert found[0].startswith("kai demo reclaim   T+1:00:05   60x   cycle 7")
    assert "q quit" in found[-1]


def test_nodes_show_the_owner_and_state_of_each_gpu():
    found = "\n".join(drawn(frame(), Console(), 80, 24))
    assert "gpu-1 R×r·○" in found
    assert "B blue  R red" in found


def test_the_whole_legend_shows_on_any_screen_width():
    for columns in (60, 80, 120):
        found = " ".join(drawn(frame(), Console(), columns, 40))
        assert all(text in found for text in ("a shared", "· idle", "○ held", "× leaving"))


def test_the_newest_happening_comes_first_with_its_reason_below():
    found = drawn(frame(), Console(), 120, 40)
    at = next(number for number, line in enumerate(found) if "2 pods evicted" in line)
    assert "red used 4 GPUs, fair share 2" in found[at + 1]
    assert "arrives" in found[at + 2]


def test_an_empty_cluster_says_what_will_come():
    before = attrs.evolve(frame().picture, jobs=(), to_come=7, upcoming="blue arrives in 6s")
    found = drawn(frame(picture=before, lines=()), Console(), 80, 24)
    assert "no jobs now, 7 will arrive" in found
    assert found[-1].startswith("next: blue arrives in 6s")


def test_a_page_takes_the_place_of_jobs_and_happenings():
    found = "\n".join(drawn(frame(page="first waits\n\nbecause"), Console(), 80, 24))
    assert "first waits" in found
    assert "evicted for blue" not in found
    assert "any other key back" in found


def test_what_the_bars_mean_is_said_on_each_screen():
    for columns, rows in ((80, 24), (160, 50)):
        found = "\n".join(drawn(frame(), Console(), columns, rows))
        assert "█ used  ▓ above fair share  ░ wanted  ◆ fair share  | quota  ] limit" in found


def test_a_long_page_hides_nodes_first_and_then_queues():
    for lines, nodes, queues in ((5, True, True), (14, False, True), (20, False, False)):
        page = "\n".join(["To make it run", *(f"change {at}" for at in range(lines - 1))])
        found = "\n".join(drawn(frame(page=page), Console(), 80, 24))
        assert f"change {lines - 2}" in found, lines
        assert ("gpu-1 R" in found, "QUEUE" in found) == (nodes, queues), lines


def test_a_page_beyond_the_screen_shows_parts_in_turn():
    page = "\n".join(f"line {at}" for at in range(50))
    first, second, third, again = (drawn(frame(page=page, turned=at), Console(), 80, 24) for at in range(4))
    assert "… part 1 of 3: space for the next" in first
    assert "space more" in first[-1]
    shown = [line for each in (first, second, third) for line in each if line.startswith("line ")]
    assert shown == page.splitlines()
    assert again == first


def test_the_state_stands_beside_the_pace():
    assert "5x (slowed: reclaim)" in drawn(frame(pace=5.0, state="slowed: reclaim"), Console(), 120, 30)[0]


def test_a_line_has_no_colour_where_none_is_wanted():
    line = Line(at=61.0, subject="red", sign=EVICTED, text="gone")
    assert line_text(line, Console()) == " 0:01:01  red            - gone"
    assert "\x1b[33m-" in line_text(line, Console(color=True))
