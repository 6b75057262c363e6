"""Groups pods of every kind of workload: from a pod over its owners to its PodGroup. Start reading at ``decide``."""

from kai.roles.podgrouper.decide import Grouping, Needs, Outcome, group_pod
from kai.roles.podgrouper.draft import GroupDraft, SubGroup, Topology
from kai.roles.podgrouper.grouper import Grouper, Groupers, KindPattern, Request, Settings, load_groupers
from kai.roles.podgrouper.lookup import Absent, Answers, Get, Lookup, Many, Read, Reader, Why
from kai.roles.podgrouper.resource import Kind, OwnerReference, Resource
from kai.roles.podgrouper.update import GroupWrite, Verb, unwritten

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
