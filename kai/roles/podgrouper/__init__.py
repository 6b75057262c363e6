"""Groups pods of every kind of workload: from a pod over its owners to its PodGroup. Start reading at ``decide``."""

from kai.roles.podgrouper.decide import Grouping, GroupWrite, Needs, Outcome, Verb, group_pod, unwritten
from kai.roles.podgrouper.grouper import (
    GroupDraft,
    Grouper,
    Groupers,
    KindPattern,
    Request,
    Settings,
    SubGroup,
    Topology,
    load_groupers,
)
from kai.roles.podgrouper.lookup import Absent, Answers, Get, Lookup, Many, Read, Reader, Why
from kai.roles.podgrouper.resource import Kind, OwnerReference, Resource

__all__ = [
    "Absent",
    "Answers",
    "Get",
    "GroupDraft",
    "GroupWrite",
    "Grouper",
    "Groupers",
    "Grouping",
    "Kind",
    "KindPattern",
    "Lookup",
    "Many",
    "Needs",
    "Outcome",
    "OwnerReference",
    "Read",
    "Reader",
    "Request",
    "Resource",
    "Settings",
    "SubGroup",
    "Topology",
    "Verb",
    "Why",
    "group_pod",
    "load_groupers",
    "unwritten",
]
