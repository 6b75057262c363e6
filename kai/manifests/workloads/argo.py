"""Argo Workflows: the pods of the first steps, and of later steps once their predecessors are complete.

Source: the workflow controller, Argo Workflows 4.1.0-rc2. Pods belong to the Workflow itself, and each runs the
containers of one template; a template of the types resource and data has a pod of Argo's own executor. A Workflow may
take its spec, and a step its template, from a WorkflowTemplate. Steps with a condition (``when``) are taken to run, and
a list from the result of another step counts as one item. A template that calls itself is followed once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.basics.parsing import list_of, mapping_of, part_of
from kai.manifests.grouping import Index
from kai.manifests.workloads.making import (
    MOST_PODS,
    Condition,
    Identity,
    Made,
    Stage,
    child,
    is_set,
    later,
    named_elsewhere,
    part,
    pods,
)
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
_STEP: Final = "simulation.kai.scheduler/step"
"""A label that tells the pods of one step from others. Argo itself writes no such label."""
_TASK: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]*")
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
    """Yield the pods of a workflow, those of later steps with their conditions; none if it is suspended or finished.

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
    holder.run(entry, spec, (), ())
    steps = sorted(holder.steps, key=lambda step: bool(step.conditions))
    for number, step in enumerate(steps, start=1):
        template = step.template
        name = f"{workload.name}-{template.text('name')}-{number}"
        identity = Identity(name=name, labels={_STEP: step.label})
        for pod in pods(workload, _pod_template(workload, spec, template), [identity]):
            yield later(pod, *step.conditions)


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


_Conditions = tuple[Condition, ...]


@attrs.frozen(kw_only=True)
class _Step:
    """One pod: its template, the label of its step, and the steps that must be complete before."""

    template: Fields
    label: str
    conditions: _Conditions


@attrs.frozen
class _Templates:
    """The templates of one spec, which steps call, and the pods that come of them."""

    workload: Resource
    index: Index
    spec: Fields
    steps: list[_Step] = attrs.field(factory=list)

    def run(self, name: str, holder: Fields, before: _Conditions, above: tuple[str, ...]) -> _Conditions:
        """Add the pods of the template of this name; return the conditions for what follows it.

        ``before`` are the conditions for the template itself, ``above`` the names of the templates that call it.

        Raises: InputError for the name of no template, and for templates that call one another at once without an end.
        """
        templates = {each.text("name") or "": each for each in self.spec.children("templates") or ()}
        template = templates.get(name)
        if template is None:
            key = ("entrypoint",) if not above else ("template",)
            raise holder.error(key, name, f"one of the templates: {', '.join(templates) or 'there is none'}")
        # Steps came before: the recursion takes time, and a condition on their results may end it.
        if name in above and before:
            return before
        if len(above) > _DEEPEST:
            raise template.error(("name",), name, "a template that does not call itself at once")
        return self._begin(template, before, (*above, name))

    def _begin(self, template: Fields, before: _Conditions, above: tuple[str, ...]) -> _Conditions:
        after = before
        for row in _rows(template):
            after = self._together(row, after, above)
        dag = part(template, "dag")
        if dag is not None:
            after = self._in_order(tuple(dag.children("tasks") or ()), before, above)
        if any(template.value.get(key) is not None for key in (*_OWN_CONTAINER, *_EXECUTED, "containerSet")):
            return (*(after if after != before else ()), self._add(template, before))
        return after

    def _add(self, template: Fields, before: _Conditions) -> Condition:
        label = str(len(self.steps) + 1)
        self.steps.append(_Step(template=template, label=label, conditions=before))
        labels = {_LABEL: self.workload.name, _STEP: label}
        return Condition(stage=Stage.COMPLETE, labels=labels, subject=template.text("name") or "a step")

    def _together(self, steps: Sequence[Fields], before: _Conditions, above: tuple[str, ...]) -> _Conditions:
        """Add the steps of one row; what follows waits for all of them."""
        found = [each for step in steps for each in self._repeated(step, before, above)]
        return tuple(found) or before

    def _in_order(self, tasks: Sequence[Fields], before: _Conditions, above: tuple[str, ...]) -> _Conditions:
        """Add the tasks of a graph, each after its dependencies; the next step waits for all of them."""
        known = {task.text("name") or "": task for task in tasks}
        done: dict[str, _Conditions] = {}
        left = dict(known)
        while left:
            ready = [name for name, task in left.items() if done.keys() >= _needed(task, known)]
            if not ready:
                break  # a circle: Argo refuses it
            for name in ready:
                task = left.pop(name)
                waits = [each for one in sorted(_needed(task, known)) for each in done[one]]
                own = tuple(dict.fromkeys(waits)) or before
                done[name] = tuple(self._repeated(task, own, above)) or own
        return tuple(dict.fromkeys(each for one in done.values() for each in one)) or before

    def _repeated(self, step: Fields, before: _Conditions, above: tuple[str, ...]) -> Iterator[Condition]:
        for _ in range(_times(step)):
            after = self._called(step, before, above)
            yield from (after if after != before else ())

    def _called(self, step: Fields, before: _Conditions, above: tuple[str, ...]) -> _Conditions:
        inline, reference = part(step, "inline"), part(step, "templateRef")
        if inline is not None:
            named = {"name": step.text("name") or "inline", **inline.value}
            return self._begin(Fields(named, inline.subject, inline.path), before, (*above, ""))
        if reference is not None:
            there = attrs.evolve(self, spec=_elsewhere(self.workload, reference, self.index))
            return there.run(reference.text("template") or "", reference, before, above)
        return self.run(step.text("template") or "", step, before, above)


def _rows(template: Fields) -> Iterator[tuple[Fields, ...]]:
    """Yield the rows of steps of a template; the steps of one row run at once."""
    for number, row in enumerate(list_of(template.value, "steps")):
        steps = row if isinstance(row, list) else list_of(row, "parallel") or [row]
        path = f"{template.path}.steps[{number}]"
        yield tuple(Fields(mapping_of(step), template.subject, f"{path}[{at}]") for at, step in enumerate(steps))


def _needed(task: Fields, known: Mapping[str, Fields]) -> set[str]:
    """Return the tasks that a task depends on: those listed, or those named in an expression."""
    listed = set(map(str, list_of(task.value, "dependencies")))
    expression = str(task.value.get("depends") or "")
    # Words of an expression that name no task are outcomes, as in `build.Succeeded || test.Failed`.
    return (listed | {each.group() for each in _TASK.finditer(expression)}) & known.keys()


def _times(step: Fields) -> int:
    """Return how many instances of a step run at once: a list from the result of another step counts as 1.

    Raises: InputError for more than any workflow has.
    """
    items = step.value.get("withItems")
    if isinstance(items, list):
        return len(items)
    count = str(part_of(step.value, "withSequence", "count"))
    if not (count.isascii() and count.isdecimal()):
        return 1
    if len(count) > len(str(MOST_PODS)) or int(count) > MOST_PODS:
        raise step.error(("withSequence", "count"), count, f"a whole number from 0 to {MOST_PODS}")
    return int(count)


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
