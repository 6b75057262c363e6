"""Claims of ``kai lint`` about admission: what it passes is let in, and so are the pods and groups that come of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from kai.cli.checking.linting import Linted, lint_paths
from kai.roles.admission import AdmissionRequest, AdmissionResponse, AdmissionSettings, mutate, validate

Manifest = Mapping[str, Any]

SETTINGS = AdmissionSettings(gpu_sharing_enabled=True)
"""As `deploy/` has them."""
_ASKED = ("Pod", "PodGroup", "Queue", "Topology")
"""Kinds that webhooks look at."""


def lint_of(objects: Sequence[Manifest], *, as_json: bool = False) -> Linted:
    """Return what lint says of objects that stand in one file."""
    if as_json:
        return lint_paths(["-"], json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode())
    return lint_paths(["-"], yaml.safe_dump_all(objects).encode())


def answer_to(obj: Manifest) -> AdmissionResponse:
    """Return what webhooks say of an object that is created."""
    request = AdmissionRequest(operation="CREATE", kind=str(obj["kind"]), object=json.loads(json.dumps(obj)))
    changed = mutate(request, SETTINGS, lambda length: "a" * length)
    return validate(request, SETTINGS, lambda _: None) if changed.allowed else changed


def untruths(objects: Sequence[Manifest], *, as_json: bool = False) -> Iterator[str]:
    """Yield what is passed by lint and refused by a webhook; as it is, or as it is made of it."""
    linted = lint_of(objects, as_json=as_json)
    passes = not any(each.is_error for each in linted.findings)
    for obj in objects:
        alone = lint_of([obj], as_json=as_json)
        answer = answer_to(obj)
        if not answer.allowed and not any(each.is_error for each in alone.findings):
            yield f"{obj['kind']} passes lint, and is refused: {answer.message}: {obj}"
        if answer.allowed and obj["kind"] in _ASKED and any(each.code == "W001" for each in alone.findings):
            yield f"{obj['kind']} is let in, and lint says: {[str(each) for each in alone.findings]}: {obj}"
        passes = passes and not any(each.is_error for each in alone.findings)
    if not passes or linted.reading is None:
        return
    for job in linted.reading.expansion.jobs:
        for made in (job.group, *job.pods):
            answer = answer_to(made)
            if not answer.allowed:
                yield f"{made['kind']} is made of what passes lint, and is refused: {answer.message}: {made}"
