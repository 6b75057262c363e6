"""Text from outside as a terminal may be given it.

Names in files, annotations and messages are written by others. What moves the cursor, renames the window or turns the
direction of writing would make a terminal show something else than there is, so it is shown as it is written in code.
"""

import re
from typing import Final

_STYLE: Final = r"\x1b\[[0-9;]*m"
_HIDDEN: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
"""Controls but tabs and ends of lines, marks that turn the direction, and halves of characters."""
_PLAIN: Final = re.compile(_HIDDEN)
_STYLED: Final = re.compile(f"({_STYLE})|{_HIDDEN}")


def visible(text: str, *, styled: bool = False) -> str:
    """Return ``text`` with what cannot be seen written out; colours stay if it is ``styled``."""
    if styled:
        return _STYLED.sub(lambda found: found[1] or _written(found[0]), text)
    return _PLAIN.sub(lambda found: _written(found[0]), text)


def encodable(text: str, encoding: str) -> str:
    """Return ``text`` with the characters written out that an encoding does not have."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
