"""The annotation that says whose group a group is."""

import json
import re

from kai.podgrouper.resource import Resource

_PLAIN = re.compile(r"[A-Za-z0-9]+(?:[-./][A-Za-z0-9]+)*", re.ASCII)
_WORDS_OF_OTHER_TYPES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_LIKE_NUMBER_OR_DATE = re.compile(
    r"[-+.0-9]+(?:[eE][-+]?[0-9]*)?|0[xob][0-9a-fA-F]*|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*", re.ASCII
)


def top_owner_text(owner: Resource) -> str:
    """Return name, uid, group, version and kind of ``owner`` as YAML, byte for byte as the peer writes them.

    The same bytes mean that taking over from the peer, or handing back to it, writes no group anew.
    """
    kind = owner.kind
    fields = {"name": owner.name, "uid": owner.uid, "group": kind.group, "version": kind.version, "kind": kind.kind}
    return "".join(f"{key}: {_scalar(value)}\n" for key, value in fields.items())


def _scalar(text: str) -> str:
    """Return a YAML scalar that is read back as the string ``text``; anything doubtful is quoted."""
    is_plain = (
        _PLAIN.fullmatch(text)
        and text.lower() not in _WORDS_OF_OTHER_TYPES
        and not _LIKE_NUMBER_OR_DATE.fullmatch(text)
    )
    return text if is_plain else json.dumps(text)
