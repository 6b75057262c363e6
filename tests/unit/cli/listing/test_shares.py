import pytest

from kai.answers.outcomes.queue_lines import Share
from kai.cli.console import Console
from kai.cli.listing.queues import bar

TOTAL = 100_000


def drawn(*, used, fair, wanted, quota=None, limit=None, console=None):
    amounts = {"quota": quota, "limit": limit, "fair_share": fair, "used": used, "wanted": wanted}
    scaled = {key: None if value is None else value * 1000 for key, value in amounts.items()}
    return bar(Share(**scaled, used_non_preemptible=0.0), TOTAL, console or Console())


@pytest.mark.parametrize(
    ("queue", "line"),
    [
        ({"used": 100, "fair": 100, "wanted": 136}, "█" * 40 + "»"),
        ({"used": 80, "fair": 80, "wanted": 80}, "█" * 32 + "◆"),
        ({"used": 48, "fair": 48, "wanted": 48}, "█" * 19 + "◆"),
        ({"used": 32, "fair": 32, "wanted": 32, "limit": 40}, "█" * 13 + "◆  ]"),
        ({"used": 20, "fair": 20, "wanted": 56}, "█" * 8 + "◆" + "░" * 13),
        ({"used": 0, "fair": 0, "wanted": 0}, "◆"),
        ({"used": 30, "fair": 10, "wanted": 30}, "████◆▓▓▓▓▓▓▓"),
        ({"used": 10, "fair": 30, "wanted": 20}, "████░░░░    ◆"),
        ({"used": 10, "fair": 20, "wanted": 20, "quota": 30}, "████░░░░◆   |"),
    ],
)
def test_a_bar_shows_what_is_used_shared_and_wanted(queue, line):
    assert drawn(**queue) == line


def test_a_cluster_without_the_resource_has_no_bars():
    assert (
        bar(Share(quota=None, limit=None, fair_share=0, used=0, used_non_preemptible=0, wanted=0), 0, Console()) == ""
    )


def test_colour_adds_nothing_but_colour():
    plain = drawn(used=30, fair=10, wanted=50)
    colored = drawn(used=30, fair=10, wanted=50, console=Console(color=True))
    assert "\x1b[" in colored
    for code in ("\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[0m"):
        colored = colored.replace(code, "")
    assert colored == plain
