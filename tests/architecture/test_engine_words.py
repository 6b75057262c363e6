"""The engine names no feature: a feature is a folder of ``kai/plugins``, and the engine knows its contract only."""

import re

import pytest

from tests.architecture.source import PACKAGE, modules

FEATURES = {
    "topology",
    "topologies",
    "rack",
    "racks",
    "zone",
    "zones",
    "numa",
    "claim",
    "claims",
    "volume",
    "volumes",
    "mig",
}
LEFT = {"objections.py": {"claims", "mig"}}
"""Words that are still there, by module. This list only shrinks: a word of it that is gone fails the test as well."""


def words(text: str) -> set[str]:
    """Return the words of ``text`` in lower case, those within names included."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", apart)}


@pytest.mark.parametrize("module", modules(PACKAGE / "engine"), ids=lambda module: module.path.name)
def test_no_module_of_the_engine_names_a_feature(module) -> None:
    assert words(module.text) & FEATURES == LEFT.get(module.path.name, set())
