"""Which kind of thing a name that was typed says it is: ``deployment/chat``, ``queue/vision``, ``chat``."""

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
"""What kubectl calls kinds of owners in short."""


def split_subject(text: str) -> tuple[str, str]:
    """Return which kind is asked for, "" for any, and the name; ``-o name`` writes a kind with its API group."""
    kind, _, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    kind = _PLURALS.get(kind, kind)
    return (kind, name) if kind in KINDS and name else ("", text)


def owner_subject(text: str) -> tuple[str, str]:
    """Return the kind of a pod or of an owner that ``text`` begins with, as it is written in small letters, and a name.

    The kind is "" where there is none. Short names and plurals are those of kubectl.
    """
    kind, slash, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    if not slash or not kind or not name:
        return "", text
    return SHORT.get(kind, kind.removesuffix("s") if kind.endswith("s") else kind), name
