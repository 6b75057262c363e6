import pytest

from kai.basics.errors import InputError
from kai.cli.selectors import read_selector

LABELS = {"app": "web", "tier": "gold", "kai.scheduler/queue": "a"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app == web", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=db", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("kai.scheduler/queue=a,tier in (gold, silver)", True),
        ("tier notin (gold)", False),
        ("missing notin (gold)", True),
        ("missing in (gold)", False),
        ("app=web,tier=silver", False),
        ("app=", False),
    ],
)
def test_a_selector_matches_as_kubectls_does(text, matches):
    assert read_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["=x", "app=x=y", "app in x", "a b", "app=x,,", "app=ü"])
def test_a_malformed_selector_is_refused_with_an_example(text):
    with pytest.raises(
        InputError, match=r"command line: --selector: found .*, expected a label selector such as app=x"
    ):
        read_selector(text)
