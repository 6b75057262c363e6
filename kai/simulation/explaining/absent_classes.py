"""Priority classes that a job names and that do not exist: it has another priority than its user wrote."""

from collections.abc import Iterator

from kai.api import names
from kai.manifests.priorities import OF_THE_SYSTEM
from kai.simulation.explaining.changes import Site
from kai.simulation.explaining.fact import Evidence


def absent_classes(site: Site) -> Iterator[Evidence]:
    """Yield each priority class that a group or its pods name and that is not there, with the priority that counts."""
    known = {each.metadata.name for each in site.objects.priority_classes}
    spec, priority = site.source.spec, site.cycle.snapshot.groups[site.group].priority
    holders = [site.source.metadata.labels, *(pod.metadata.labels for pod in site.waiting)]
    named = [spec.priority_class_name, *(labels.get(names.PRIORITY_CLASS, "") for labels in holders)]
    counts = f", that of class {spec.priority_class_name}" if spec.priority_class_name in known else ", the default"
    for name in dict.fromkeys(named):
        if name and name not in known and name not in OF_THE_SYSTEM:
            text = f"{priority}{counts}: class {name} does not exist"
            values = {"priority": priority, "absentClass": name, "class": spec.priority_class_name}
            yield Evidence(label="priority", text=text, values=values)


__all__ = ["absent_classes"]
