"""Experiments: one run each, described so that another process or machine can carry it out from the description alone.

``carry_out`` is all that such a process calls; what it returns is the same wherever it runs.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import inf
from typing import Any

import attrs

from kai.configuration.aliases import PluginEntry
from kai.configuration.reading import Configuration, default_configuration
from kai.configuration.registry import Registry
from kai.errors import ConfigError
from kai.manifests import Finding
from kai.progress import report
from kai.simulation.kinds import declare_kinds
from kai.virtual.loading import Loaded, load
from kai.virtual.measuring import PolicyInput, result_of
from kai.virtual.result import SimulationResult
from kai.virtual.simulation import run


@attrs.frozen(kw_only=True)
class Experiment:
    """A workload, a cluster and a policy.

    Units: seconds.
    """

    workload: str
    cluster: str | None = None
    until: float = inf
    seed: int = 0
    skips_bad_rows: bool = False
    configuration: Configuration | None = None
    """None for the cluster's own, or the default one."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """What the policy says of how the cluster becomes a snapshot, by name."""
    policy: PolicyInput = attrs.field(factory=PolicyInput)

    def load(self) -> Loaded:
        """Return the scene.

        Raises: InputError that names what is wrong with which file.
        """
        return load(self.workload, self.cluster, self.seed, until=self.until, skips_bad_rows=self.skips_bad_rows)


@attrs.frozen(kw_only=True)
class Done:
    """What came out of an experiment, and what is doubtful about its files."""

    result: SimulationResult
    findings: tuple[Finding, ...] = ()


def carry_out(experiment: Experiment) -> Done:
    """Return what comes out of an experiment.

    Holds: the result is the same wherever it is carried out, but for the seconds of computing.
    Raises: InputError and ConfigError that name what is wrong.
    """
    began = time.process_time()
    declare_kinds(Registry.installed())
    loaded = experiment.load()
    scene = loaded.scene
    ran = run(
        scene,
        experiment.configuration,
        until=experiment.until,
        settings=attrs.evolve(scene.settings, **experiment.settings),
    )
    seconds = round(time.process_time() - began, 3)
    return Done(result=result_of(ran, experiment.policy, seconds), findings=loaded.findings)


def carry_out_all(experiments: Sequence[Experiment], most: int | None = None) -> tuple[Done, ...]:
    """Return what comes out of each experiment, in their order; several run side by side, one on each core.

    Raises: as ``carry_out``.
    """
    workers = min(len(experiments), most or len(os.sched_getaffinity(0)))
    if workers <= 1:
        return tuple(map(carry_out, experiments))
    what, done = f"simulating {len(experiments)} runs, {workers} at a time", list[Done]()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        report(what, 0, len(experiments), "")
        for each in pool.map(carry_out, experiments):
            done.append(each)
            report(what, len(done), len(experiments), "")
    return tuple(done)


def with_value(experiment: Experiment, path: str, value: object) -> Experiment:
    """Return an experiment with another value at a path: seed, parameters.NAME or plugins.PLUGIN.OPTION.

    Raises: ConfigError for a path that leads nowhere.
    """
    shown = f"{path}={value}"
    if path == "seed" and isinstance(value, int):
        policy = attrs.evolve(experiment.policy, name=shown)
        return attrs.evolve(experiment, seed=value, policy=policy)
    known = experiment.configuration or default_configuration()
    head, _, rest = path.partition(".")
    plugin, _, option = rest.partition(".")
    if head == "parameters" and rest in attrs.fields_dict(type(known.parameters)):
        named: dict[str, Any] = {rest: value}
        changed = attrs.evolve(known, parameters=attrs.evolve(known.parameters, **named))
    elif head == "plugins" and plugin and option:
        changed = attrs.evolve(known, plugins=_with_option(known.plugins, plugin, option, value))
    else:
        wanted = "seed, parameters.NAME or plugins.PLUGIN.OPTION"
        raise ConfigError.about("command line", "--sweep", found=path, wanted=wanted)
    before = experiment.policy
    name = shown if before.name == "default" else f"{before.name} {shown}"
    return attrs.evolve(experiment, configuration=changed, policy=attrs.evolve(before, name=name))


def _with_option(plugins: Sequence[PluginEntry], name: str, option: str, value: object) -> tuple[PluginEntry, ...]:
    """Return plugins with an option set; one that is not among them comes behind them."""
    entries = {entry.name: dict(entry.options) for entry in plugins}
    entries.setdefault(name, {})[option] = value
    return tuple(PluginEntry(each, options) for each, options in entries.items())


__all__ = ["Done", "Experiment", "carry_out", "carry_out_all", "with_value"]
