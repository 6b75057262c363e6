import pytest

from kai.basics.errors import ApiError, ConfigError, InputError, InvariantError, KaiError, PluginError


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("x"),
        InputError("x"),
        ApiError("x", retryable=True),
        PluginError("x", plugin="p", hook="open"),
        InvariantError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_is_a_kai_error_with_its_message(error: KaiError) -> None:
    assert isinstance(error, KaiError)
    assert "x" in str(error)


def test_a_message_names_object_field_found_and_wanted() -> None:
    error = InputError.about('queue "team-a"', "spec.gpu.limit", found=-3, wanted="a number of at least 0")
    assert str(error) == 'queue "team-a": spec.gpu.limit: found -3, expected a number of at least 0'


def test_an_absent_value_is_called_nothing() -> None:
    assert "found nothing," in str(ConfigError.about("config.yaml", "actions", found=None, wanted="a list"))


@pytest.mark.parametrize(
    "found",
    ["x" * 10_000, list(range(10_000)), 10**5_000, {"a": ["b" * 500] * 500}, "a\nb"],
    ids=["long text", "long list", "too many digits", "nested", "two lines"],
)
def test_a_message_stays_on_one_short_line(found: object) -> None:
    text = str(InputError.about("pod default/a", "spec", found=found, wanted="a mapping"))
    assert "\n" not in text
    assert len(text) < 800


def test_quoted_text_cannot_break_lines_or_act_on_terminals() -> None:
    assert str(InputError("queue a\nb: \x1b[2J", "c\r")) == "queue a b: \\x1b[2J\nc "
    assert InputError("a\nb").args == ("a b",)


def test_errors_are_joined_in_order_one_a_line() -> None:
    joined = ConfigError.joined([ConfigError("a", "b"), ConfigError("c")])
    assert joined.messages == ("a", "b", "c")
    assert str(joined) == "a\nb\nc"


def test_joining_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        InputError.joined([])


def test_a_plugin_error_says_whose_and_where() -> None:
    error = PluginError("returned 3 scores for 4 nodes", plugin="binpack", hook="score_nodes")
    assert str(error) == 'plugin "binpack", score_nodes: returned 3 scores for 4 nodes'


def test_an_api_error_says_whether_trying_again_helps() -> None:
    assert ApiError("conflict", retryable=True).retryable
    assert not ApiError("forbidden", retryable=False).retryable
