"""Argo Workflows: the pods of the steps that come first.

Source: the workflow controller: pods belong to the Workflow itself, each runs one container or script. Which steps
follow depends on how the first ones end, so they are not there yet.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.lenient import mapping_of, part_of
from kai.manifests.workloads.making import Identity, Made, is_set, part, pods
from kai.podgrouper.resource import Fields, Resource

_DEEPEST: Final = 10
"""Templates that call one another deeper than this call themselves."""
_LABEL: Final = "workflows.argoproj.io/workflow"
_OF_POD: Final = ("nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName")


def workflow(workload: Resource) -> Iterator[Made]:
    """Yield the pods with which a workflow begins; none for one that is suspended or over.

    Raises: InputError for an entrypoint that is no template.
    """
    fields = workload.fields
    phase = part_of(workload.manifest, "status", "phase")
    if is_set(fields, "spec", "suspend") or phase in {"Succeeded", "Failed", "Error"}:
        return
    spec = fields.child("spec")
    if spec is None:
        raise workload.error("spec", None, "the spec of a workflow")
    templates = {each.text("name") or "": each for each in spec.children("templates") or ()}
    entry = spec.text("entrypoint") or ""
    for number, template in enumerate(_first(entry, spec, templates, 0), start=1):
        name = f"{workload.name}-{template.text('name')}-{number}"
        yield from pods(workload, _pod_template(workload, spec, template), [Identity(name=name)])


def _first(name: str, holder: Fields, templates: Mapping[str, Fields], depth: int) -> Iterator[Fields]:
    """Yield, once for each pod, the templates with which the template of this name begins.

    Raises: InputError for a name that no template has.
    """
    template = templates.get(name)
    if template is None:
        key = ("entrypoint",) if depth == 0 else ("template",)
        raise holder.error(key, name, f"one of the templates: {', '.join(templates) or 'there is none'}")
    if depth > _DEEPEST:
        raise template.error(("name",), name, "a template that does not call itself at once")
    for step in _begun(template):
        for _ in range(_times(step)):
            yield from _first(step.text("template") or "", step, templates, depth + 1)
    if template.value.get("container") is not None or template.value.get("script") is not None:
        yield template


def _begun(template: Fields) -> Iterator[Fields]:
    """Yield the first steps of a template: those of its first row, or the tasks that depend on no other."""
    steps = template.value.get("steps")
    if isinstance(steps, list) and steps:
        first = steps[0] if isinstance(steps[0], list) else part_of(steps[0], "parallel") or [steps[0]]
        for at, step in enumerate(first):
            yield Fields(mapping_of(step), template.subject, f"{template.path}.steps[0][{at}]")
    dag = part(template, "dag")
    for task in (dag.children("tasks") or ()) if dag is not None else ():
        if not task.value.get("dependencies") and not task.value.get("depends"):
            yield task


def _times(step: Fields) -> int:
    """Return how often a step runs at once: a list that comes of another step counts as 1."""
    items = step.value.get("withItems")
    if isinstance(items, list):
        return len(items)
    count = str(part_of(step.value, "withSequence", "count"))
    return int(count) if count.isdecimal() else 1


def _pod_template(workload: Resource, spec: Fields, template: Fields) -> Fields:
    container = template.value.get("container") or template.value.get("script")
    shared, own = mapping_of(spec.value, "podMetadata"), mapping_of(template.value, "metadata")
    metadata = {key: {**mapping_of(shared, key), **mapping_of(own, key)} for key in ("labels", "annotations")}
    metadata["labels"][_LABEL] = workload.name
    pod: dict[str, Any] = {
        key: template.value.get(key) or spec.value.get(key)
        for key in _OF_POD
        if template.value.get(key) or spec.value.get(key)
    }
    sidecars = template.value.get("sidecars")
    pod["containers"] = [{"name": "main", **mapping_of(container)}, *(sidecars if isinstance(sidecars, list) else ())]
    pod["restartPolicy"] = "Never"
    return Fields({"metadata": metadata, "spec": pod}, template.subject, template.path)
