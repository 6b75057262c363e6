"""Other documents: findings, versions, plugins, checks, codes, cycles, and usage over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kai.answers.documents.document import ABSENT, Document

# --- Findings ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FindingItem:
    """One thing that is not as it should be; ``severity`` ok is a check that found nothing.

    ``meaning`` is refusal, wait or advice; null of a check of an installation.
    """

    code: str
    title: str = ABSENT
    """Of a check of an installation."""
    severity: str
    meaning: str | None
    message: str
    file: str | None
    line: int | None
    column: int | None
    object: str | None
    found: str | None
    expected: str | None
    help: str | None
    url: str | None = ABSENT
    """As ``title``."""


@attrs.frozen(kw_only=True)
class Findings(Document):
    """What is wrong with files or an installation (``kai lint``, ``kai doctor``)."""

    items: tuple[FindingItem, ...]


@attrs.frozen(kw_only=True)
class CheckItem:
    """One check of ``kai doctor``."""

    code: str
    title: str


@attrs.frozen(kw_only=True)
class CheckList(Document):
    """Which checks there are (``kai doctor --list``)."""

    items: tuple[CheckItem, ...]


@attrs.frozen(kw_only=True)
class CodeItem:
    """One code of ``kai lint``."""

    code: str
    severity: str
    meaning: str
    title: str
    text: str


@attrs.frozen(kw_only=True)
class CodeList(Document):
    """What codes of findings mean (``kai lint --explain``)."""

    items: tuple[CodeItem, ...]


# --- Files and versions -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Snapshot(Document):
    """What was written into a file (``kai snapshot``)."""

    file: str
    redacted: str
    counts: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Versions(Document):
    """The versions of all parts (``kai version``), by name beside the fields of every document."""

    kai: str
    python: str


@attrs.frozen(kw_only=True)
class Kernels(Document):
    """How many kernels there are, how many of them were compiled just now, and where they are kept (``kai warm``)."""

    kernels: int
    compiled: int
    directory: str


# --- Plugins ----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PluginItem:
    """A plugin or an action that is installed; ``position`` is its place in the order, null where it is off."""

    name: str
    kind: str
    position: int | None
    origin: str
    version: str
    target: str
    does: str
    hooks: tuple[str, ...]
    options: Mapping[str, str]
    rights: tuple[str, ...]
    problem: str
    rivals: tuple[str, ...]
    """Other distributions that offer the same name; while there are any, a configuration cannot use it."""
    enabled: bool


@attrs.frozen(kw_only=True)
class PluginList(Document):
    """Which plugins and actions are installed, and what each does (``kai plugins``)."""

    items: tuple[PluginItem, ...]


@attrs.frozen(kw_only=True)
class TimedHook:
    """One hook of a plugin: how often it was called, and which share of the cycles it took."""

    plugin: str
    hook: str
    calls: int
    seconds: float
    share: float


@attrs.frozen(kw_only=True)
class PluginTimes(Document):
    """How long the functions of plugins took, and the cycles as a whole (``kai plugins --time``)."""

    seconds: float
    items: tuple[TimedHook, ...]


# --- Cycles -----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class CycleItem:
    """One cycle: how long it and its phases took, and how many pods were started, held, evicted or moved."""

    number: int
    time: str
    seconds: float
    phases: Mapping[str, float]
    decisions: Mapping[str, int]


@attrs.frozen(kw_only=True)
class CycleList(Document):
    """The last cycles of the service, the newest first (``/api/v1/cycles``)."""

    items: tuple[CycleItem, ...]


# --- Usage ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SpanItem:
    """A time and what was held in it; the keys of rows follow from the report, and keys in small units are exact."""

    from_: str
    to: str
    rows: tuple[Mapping[str, Any], ...]


@attrs.frozen(kw_only=True)
class UsageReport(Document):
    """Who used what over a time (``kai report``)."""

    report: str
    recorded_until: str | None
    """The last instant that the file has a record of; null for an empty file."""
    spans: tuple[SpanItem, ...]


@attrs.frozen(kw_only=True)
class UsageItem:
    """What was held in a day, a week or a month, and what the cluster had; ``held`` and ``capacity`` are exact."""

    name: str
    from_: str
    to: str
    hours: float
    held_hours: float
    capacity_hours: float
    fraction: float
    unrecorded_hours: float
    held: int
    capacity: int


@attrs.frozen(kw_only=True)
class UsageHistory(Document):
    """What a queue or the cluster held over time (``kai history``)."""

    queue: str | None
    """Null for all queues together."""
    resource: str
    items: tuple[UsageItem, ...]
