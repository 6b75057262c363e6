"""Put a scenario together: settings, cycles and objects."""

import json
from random import Random

from tests.generate.draft import HOST_LABEL, LEVELS, NOW, RACK_LABEL, Draft, Manifest
from tests.generate.emit_cluster import emit_cluster
from tests.generate.emit_workload import emit_workload
from tests.generate.features import Chosen, draw_features
from tests.generate.groups import draw_groups
from tests.generate.nodes import draw_nodes
from tests.generate.queues import draw_queues

ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
_LEVEL_SETS = (LEVELS, LEVELS[:2], LEVELS[1:], LEVELS[:1])
_SPREADING = (
    {"name": "gpuspread"},
    {"name": "nodeplacement", "arguments": {"cpu": "spread", "gpu": "spread"}},
)


def generate(seed: int, chosen: Chosen | None = None) -> Manifest:
    """Make the scenario of ``seed``; the same seed and choice make the same scenario."""
    random = Random(seed)
    draft = Draft(random, draw_features(random, chosen or Chosen()))
    if draft.has("topology"):
        draft.levels = random.choice(_LEVEL_SETS)
    draw_nodes(draft)
    draw_queues(draft)
    draw_groups(draft)
    _draw_capacities(draft)
    cycles = random.choice((2, 3, 5)) if draft.has("cycles") else 1
    scenario: Manifest = {
        "name": f"generated-{seed:06d}",
        "description": f"features: {', '.join(sorted(draft.features))}",
        "now": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "actions": list(ACTIONS),
        "cycles": cycles,
        "stableCycles": random.choice((0, 1)) if cycles > 1 else 0,
        "config": _config(draft),
    }
    if draft.has("keep-terminating"):
        scenario["keepTerminating"] = [group.name for group in draft.groups if random.random() < 0.4]
    scenario["objects"] = [*emit_cluster(draft), *emit_workload(draft)]
    return scenario


def _draw_capacities(draft: Draft) -> None:
    """Draw how much storage is left by node or by rack; of some nothing is known."""
    random = draft.random
    draft.capacity_label = random.choice((HOST_LABEL, RACK_LABEL))
    for value in sorted({node.labels.get(draft.capacity_label, "") for node in draft.nodes} - {""}):
        if random.random() < 0.8:
            draft.capacities[value] = random.choice((0, 8, 40, 1000))


def _config(draft: Draft) -> Manifest:
    random, varied = draft.random, draft.has("settings")
    params: Manifest = {
        "maxConsolidationPreemptees": random.choice((-1, 0, 2, 16)) if varied else -1,
        "allowConsolidatingReclaim": random.random() < 0.7 if varied else True,
        "useSchedulingSignatures": random.random() < 0.5 if varied else False,
        "defaultStalenessGracePeriod": random.choice(("0s", "60s", "1h")) if varied else "0s",
    }
    config: Manifest = {"params": params}
    added: list[Manifest] = [{"name": "numa"}] if draft.has("numa") else []
    added += [{"name": "podaffinity"}] if draft.sometimes("pod-affinity", 0.5) else []
    if added:
        config["addPlugins"] = added
    if draft.has("strategies"):
        config["tiers"] = [{"plugins": _plugins()}]
    return config


def _plugins() -> list[Manifest]:
    """List the default plugins with everything that packs replaced by what spreads."""
    names = (
        "predicates proportion priority elastic kubeflow ray nodeavailability resourcetype subgrouporder taskorder "
        "nominatednode dynamicresources minruntime topology snapshot sg-nodelocalgreedy sg-multinodegang"
    )
    return [*({"name": name} for name in names.split()), *(dict(plugin) for plugin in _SPREADING)]


def write_text(scenario: Manifest) -> str:
    """Write ``scenario`` as JSON, which is YAML too, with each object on a line of its own."""
    head = {key: value for key, value in scenario.items() if key != "objects"}
    lines = ",\n".join(json.dumps(item, separators=(", ", ": ")) for item in scenario["objects"])
    return f'{json.dumps(head, indent=1)[:-2]},\n "objects": [\n{lines}\n]}}\n'
