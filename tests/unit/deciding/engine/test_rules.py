import numpy as np
import pytest

from kai.basics.errors import ConfigError
from kai.deciding.engine.host import Silent
from kai.deciding.engine.opened import OpenedPlugin, open_plugins
from kai.deciding.engine.rules import fold_rules
from kai.framework import (
    Availability,
    CpuOnlyNodes,
    Density,
    DeviceOrder,
    Fragmentation,
    PluginUse,
    SharedDevices,
)
from kai.framework.terms import Term
from kai.plugins.fragmentation import Fragmentation as Plugin
from tests.unit.plugins.fragmentation.test_mix import asking, gpu_node
from tests.unit.plugins.stage import Stage, snapshot_of

MIX = Fragmentation(
    shapes=np.array([2]),
    shares=np.ones(1),
    allowed=np.ones((1, 3), np.bool_),
    gpu_by_cpu=np.ones(3),
    gpu_by_memory=np.ones(3),
    pressure=np.ones(3),
    weight=7.0,
)


def folded(*terms: Term):
    return fold_rules([OpenedPlugin(name=f"p{at}", terms=(term,)) for at, term in enumerate(terms)], -1).rules


def test_terms_of_all_plugins_are_added_up():
    rules = folded(Density(gpu_binpack=1.0), Density(gpu_binpack=0.5, cpu_binpack=2.0), Availability(30.0))
    assert (rules.binpack_gpu, rules.binpack_cpu, rules.availability) == (1.5, 2.0, 30.0)
    assert rules.mix.weight == 0.0


def test_fragmentation_replaces_the_terms_that_approximate_it():
    rules = folded(Density(gpu_binpack=1.0, cpu_spread=1.0), SharedDevices(), DeviceOrder(pack=1.0, spread=1.0), MIX)
    silent = (rules.binpack_gpu, rules.spread_cpu, rules.sharing, rules.pack_slots, rules.spread_slots)
    assert silent == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert rules.mix.weight == 7.0
    assert rules.mix.shapes is MIX.shapes


def test_fragmentation_leaves_all_other_terms_their_say():
    rules = folded(CpuOnlyNodes(), Availability(), MIX)
    assert (rules.cpu_only, rules.availability) == (10.0, 1000.0)


def test_two_plugins_cannot_both_say_what_stays_usable():
    stage = Stage.of(Plugin(), snapshot_of(gpu_node("n1"), asking("a-0")))
    uses = [PluginUse(name=name, plugin=Plugin(order=False)) for name in ("one", "other")]
    with pytest.raises(ConfigError, match="found one and other that both say what stays usable of nodes"):
        open_plugins(uses, stage.session.view, Silent())
