"""The kind in a name that was typed: ``deployment/chat``, ``queue/vision``, or none in ``chat``."""

from typing import Final

KINDS = ("job", "queue", "node")
_PLURALS = {"jobs": "job", "queues": "queue", "nodes": "node", "podgroup": "job", "podgroups": "job", "pg": "job"}
SHORT: Final = {
    "cj": "cronjob",
    "deploy": "deployment",
    "ds": "daemonset",
    "lws": "leaderworkerset",
    "po": "pod",
    "rc": "replicationcontroller",
    "rs": "replicaset",
    "sts": "statefulset",
    "svc": "service",
}
"""kubectl's short names of the kinds of owners."""


def split_subject(text: str) -> tuple[str, str]:
    """Return the kind, "" for any, and the name; ``-o name`` writes a kind with its API group."""
    kind, _, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    kind = _PLURALS.get(kind, kind)
    return (kind, name) if kind in KINDS and name else ("", text)


def owner_subject(text: str) -> tuple[str, str]:
    """Return the kind of a pod or of an owner before the slash, in lower case, and the name after it.

    The kind is "" where there is none. Short names and plurals are those of kubectl.
    """
    kind, slash, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    if not slash or not kind or not name:
        return "", text
    return SHORT.get(kind, kind.removesuffix("s") if kind.endswith("s") else kind), name
