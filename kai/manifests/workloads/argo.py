"""Argo Workflows: the pods of the first steps.

Source: the workflow controller, Argo Workflows 3.7. Pods belong to the Workflow itself, and each runs the containers of
one template; a template of the types resource and data has a pod of Argo's own executor. A Workflow may take its spec,
and a step its template, from a WorkflowTemplate. Which steps follow depends on the results of the first ones, so they
are not created yet.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from kai.basics.parsing import list_of, mapping_of, part_of
from kai.manifests.grouping import Index
from kai.manifests.workloads.making import Identity, Made, child, is_set, named_elsewhere, part, pods
from kai.roles.podgrouper.resource import Fields, Kind, Resource

GROUP: Final = "argoproj.io"
TEMPLATES: Final = ("WorkflowTemplate", "ClusterWorkflowTemplate")
LISTED: Final = (
    (f"{GROUP}/v1alpha1", TEMPLATES[0], "workflowtemplates"),
    (f"{GROUP}/v1alpha1", TEMPLATES[1], "clusterworkflowtemplates"),
)
_DEEPEST: Final = 10
"""Templates that call one another deeper than this are taken to be recursive."""
_LABEL: Final = "workflows.argoproj.io/workflow"
_OF_POD: Final = ("nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName")
_OWN_CONTAINER: Final = ("container", "script")
_EXECUTED: Final = ("resource", "data")
"""Types of templates whose pod has only Argo's own container."""
_MERGED: Final = ("nodeSelector", "podMetadata")


def cron_workflow(workload: Resource, _: Index) -> Iterator[Made]:
    """Yield the Workflow of one run, as if it were due now; none if the CronWorkflow is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    spec = fields.child("spec", "workflowSpec")
    if spec is None:
        raise fields.error(("spec", "workflowSpec"), None, "the spec of the Workflows")
    metadata = mapping_of(workload.manifest, "spec", "workflowMetadata")
    more = {key: dict(mapping_of(metadata, key)) for key in ("labels", "annotations") if metadata.get(key)}
    yield child(workload, workload.kind.api_version, "Workflow", f"{workload.name}-now", spec.value, **more)


def workflow(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the first pods of a workflow; none if it is suspended or finished.

    Raises: InputError if the entrypoint is not a template, AbsentError for a WorkflowTemplate that is not in the input.
    """
    fields = workload.fields
    phase = part_of(workload.manifest, "status", "phase")
    if is_set(fields, "spec", "suspend") or phase in {"Succeeded", "Failed", "Error"}:
        return
    spec = fields.child("spec")
    if spec is None:
        raise workload.error("spec", None, "the spec of a workflow")
    source = part(spec, "workflowTemplateRef")
    if source is not None:
        held = _elsewhere(workload, source, index)
        joined = _joined(held.value, spec.value)
        spec = Fields(joined, held.subject if "entrypoint" not in spec.value else spec.subject, "spec")
    holder = _Templates(workload, index, spec)
    entry = spec.text("entrypoint") or ""
    for number, template in enumerate(holder.first(entry, spec, 0), start=1):
        name = f"{workload.name}-{template.text('name')}-{number}"
        yield from pods(workload, _pod_template(workload, spec, template), [Identity(name=name)])


def _elsewhere(workload: Resource, reference: Fields, index: Index) -> Fields:
    """Return the spec of the WorkflowTemplate that a reference names.

    Raises: AbsentError if it is not in the input.
    """
    kind = TEMPLATES[is_set(reference, "clusterScope")]
    place = "" if kind == TEMPLATES[1] else workload.namespace
    found = named_elsewhere(reference, "name", Kind(GROUP, workload.kind.version, kind), place, index)
    return found.fields.child("spec") or Fields({}, str(found), "spec")


def _joined(held: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a WorkflowTemplate, overridden by the Workflow's own fields."""
    merged = {key: {**mapping_of(held, key), **mapping_of(own, key)} for key in _MERGED if key in held or key in own}
    return {**held, **{key: value for key, value in own.items() if value is not None}, **merged}


@attrs.frozen
class _Templates:
    """The templates of one spec, which steps call."""

    workload: Resource
    index: Index
    spec: Fields

    def first(self, name: str, holder: Fields, depth: int) -> Iterator[Fields]:
        """Yield, once for each pod, the first templates to run for the template of this name.

        Raises: InputError for the name of no template.
        """
        templates = {each.text("name") or "": each for each in self.spec.children("templates") or ()}
        template = templates.get(name)
        if template is None:
            key = ("entrypoint",) if depth == 0 else ("template",)
            raise holder.error(key, name, f"one of the templates: {', '.join(templates) or 'there is none'}")
        if depth > _DEEPEST:
            raise template.error(("name",), name, "a template that does not call itself at once")
        yield from self._begin(template, depth)

    def _begin(self, template: Fields, depth: int) -> Iterator[Fields]:
        for step in _begun(template):
            for _ in range(_times(step)):
                yield from self._called(step, depth + 1)
        if any(template.value.get(key) is not None for key in (*_OWN_CONTAINER, *_EXECUTED, "containerSet")):
            yield template

    def _called(self, step: Fields, depth: int) -> Iterator[Fields]:
        inline, reference = part(step, "inline"), part(step, "templateRef")
        if inline is not None:
            named = {"name": step.text("name") or "inline", **inline.value}
            yield from self._begin(Fields(named, inline.subject, inline.path), depth)
        elif reference is not None:
            there = _Templates(self.workload, self.index, _elsewhere(self.workload, reference, self.index))
            yield from there.first(reference.text("template") or "", reference, depth)
        else:
            yield from self.first(step.text("template") or "", step, depth)


def _begun(template: Fields) -> Iterator[Fields]:
    """Yield the first steps of a template: those of its first row, or the tasks without dependencies."""
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
    """Return how many instances of a step run at once: a list from the result of another step counts as 1."""
    items = step.value.get("withItems")
    if isinstance(items, list):
        return len(items)
    count = str(part_of(step.value, "withSequence", "count"))
    return int(count) if count.isdecimal() else 1


def _containers(template: Fields) -> list[object]:
    """Return the containers of a template's pod; containers that Argo adds request no GPU."""
    several = list_of(template.value, "containerSet", "containers")
    own = next((template.value[key] for key in _OWN_CONTAINER if template.value.get(key) is not None), None)
    return [*several] if several else [{"name": "main", **mapping_of(own)}]


def _pod_template(workload: Resource, spec: Fields, template: Fields) -> Fields:
    shared, own = mapping_of(spec.value, "podMetadata"), mapping_of(template.value, "metadata")
    metadata = {key: {**mapping_of(shared, key), **mapping_of(own, key)} for key in ("labels", "annotations")}
    metadata["labels"][_LABEL] = workload.name
    pod: dict[str, Any] = {
        key: template.value.get(key) or spec.value.get(key)
        for key in _OF_POD
        if template.value.get(key) or spec.value.get(key)
    }
    pod["containers"] = [*_containers(template), *list_of(template.value, "sidecars")]
    pod["restartPolicy"] = "Never"
    return Fields({"metadata": metadata, "spec": pod}, template.subject, template.path)
