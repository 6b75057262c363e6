"""Engine and actions name no feature: a feature is a folder of ``kai/plugins``, and they know its contract only."""

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


def words(text: str) -> set[str]:
    """Return the words of ``text`` in lower case, those within names included."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", apart)}


MODULES = [*modules(PACKAGE / "deciding" / "engine"), *modules(PACKAGE / "actions")]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.name)
def test_no_module_of_engine_and_actions_names_a_feature(module) -> None:
    assert not words(module.text) & FEATURES
