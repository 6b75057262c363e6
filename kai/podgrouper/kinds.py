"""Kinds of objects that the pod grouper reads and writes whatever the workload is."""

from typing import Final

from kai.api import names
from kai.podgrouper.resource import Kind

POD: Final = Kind("", "v1", "Pod")
NAMESPACE: Final = Kind("", "v1", "Namespace")
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap")
JOB: Final = Kind("batch", "v1", "Job")
PRIORITY_CLASS: Final = Kind("scheduling.k8s.io", "v1", "PriorityClass")
POD_GROUP: Final = Kind.of(names.POD_GROUP_VERSION, "PodGroup")
KARTA: Final = Kind("run.ai", "v1alpha1", "Karta")
