"""Profiles: actions and plugins of a configuration, made, or refused with what would be right."""

from importlib.metadata import EntryPoint

import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry


class Tidy:
    name = "tidy"

    def run(self, session):
        """Do nothing."""


class Nameless:
    def run(self, session):
        """Do nothing."""


class Wanting(Tidy):
    def __init__(self, most):
        self.most = most


class Leaving(Tidy):
    def __init__(self):
        raise SystemExit(3)


def profile_with(cls, name="tidy"):
    installed = Registry.installed()
    point = EntryPoint(name, f"{__name__}:{cls.__name__}", "kai.actions")
    actions = [*(each for points in installed.actions.values() for each in points), point]
    plugins = [each for points in installed.plugins.values() for each in points]
    return make_profile(read_configuration({"actions": ["allocate", name]}, "here"), Registry.of(plugins, actions))


def test_an_action_of_another_package_runs_at_its_place():
    assert [each.name for each in profile_with(Tidy).actions] == ["allocate", "tidy"]


@pytest.mark.parametrize(
    ("cls", "name", "complaint"),
    [
        (Nameless, "tidy", "found the attribute name nothing, expected 'tidy', as it is installed"),
        (Tidy, "neat", "found the attribute name 'tidy', expected 'neat', as it is installed"),
        (
            Wanting,
            "tidy",
            (
                "found that Wanting() raised TypeError: Wanting.__init__() missing 1 required positional argument: "
                "'most', expected a class that is made without arguments"
            ),
        ),
        (
            Leaving,
            "tidy",
            "found that Leaving() raised SystemExit: 3, expected a class that is made without arguments",
        ),
    ],
)
def test_an_action_that_fails_or_is_misnamed_is_refused(cls, name, complaint):
    with pytest.raises(ConfigError) as caught:
        profile_with(cls, name)
    assert str(caught.value) == f"here: actions: action {name!r} of : {complaint}"
