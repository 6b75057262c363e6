"""A workload kind nobody has heard of, and Kartas that describe it."""

from tests.unit.roles.podgrouper.workloads import thing

FLOW = thing("example.com/v1", "Flow", spec={"master": {"replicas": 1}, "worker": {"replicas": 2}})


def selector(role):
    return {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": role}}


def child(name, **fields):
    return {
        "name": name,
        "ownerRef": "flow",
        "specDefinition": {"podTemplateSpecPath": f".spec.{name}.template"},
        "scaleDefinition": {"replicasPath": f".spec.{name}.replicas"},
        "podSelector": selector(name),
        **fields,
    }


def karta(gangs, *, name="flow", children=None, root=None):
    return thing(
        "run.ai/v1alpha1", "Karta", name, namespace="",
        labels={"run.ai/karta-group": "example.com", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Flow"},
        spec={
            "structureDefinition": {
                "rootComponent": {
                    "name": "flow",
                    "kind": {"group": "example.com", "version": "v1", "kind": "Flow"},
                    "statusDefinition": {},
                    **(root or {}),
                },
                "childComponents": [child("master"), child("worker")] if children is None else children,
            },
            "optimizationInstructions": {"gangScheduling": gangs},
        },
    )  # fmt: skip


def one_group(*names, **fields):
    return {"podGroup": {"name": "gang", "subGroups": [{"componentName": name} for name in names], **fields}}
