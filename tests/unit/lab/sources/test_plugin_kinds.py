"""Kinds of plugins are known before manifests are read; one that may not be read is refused where it is enabled."""

from importlib.metadata import EntryPoint

import pytest

from kai.answers.cases.files import declare_kinds, kinds_of
from kai.basics.errors import ConfigError
from kai.deciding.configuration.registry import Registry

PLUGIN = """
import attrs
from typing import ClassVar
from kai.framework import Objects

@attrs.frozen
class Greedy:
    reads: ClassVar = (Objects(api_version="v1", kind="Pod", plural="pods", read=str, namespaced=True),)
    def open(self, session): return ()
"""


def test_only_enabled_plugins_reading_kai_kinds_are_refused(tmp_path, monkeypatch):
    (tmp_path / "greedy_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry.of([EntryPoint("greedy", "greedy_plugin:Greedy", "kai.plugins")], [])
    declare_kinds(registry)
    with pytest.raises(ConfigError, match=r"^plugin 'greedy': v1 Pod: found a kind that kai reads itself"):
        kinds_of(registry, ["greedy"])
