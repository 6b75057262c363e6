"""What is tried: a decoder, what it is given when nothing is wrong, and by which errors it may refuse."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from kai.api.values import BadValue
from kai.basics.errors import KaiError

KAI: Final = Path(__file__).parents[2] / "kai"
_LONGEST: Final = 8192


@attrs.frozen(kw_only=True)
class Target:
    """One decoder."""

    name: str
    samples: Callable[[], tuple[Any, ...]]
    """JSON values, texts or bytes that are right."""
    read: Callable[[Any], object]
    refusals: tuple[type[Exception], ...] = (KaiError, BadValue)
    weight: int = 8
    """How much of the objects of a run it gets; what is long to read or to change gets less."""
    is_raw: bool = False
    """Samples are bytes, which are changed as bytes are."""
    within: str = ""
    """Only what stands under this key of a sample is changed; of a list one element, which stays an object of its
    kind and name, as an API server gives no other."""


class BrokenError(AssertionError):
    """A decoder did what it must not do."""


def try_out(target: Target, given: Any) -> bool:
    """Read something; return whether it was taken rather than refused.

    Raises: BrokenError for any other error, and for a refusal that is not on one line.
    """
    try:
        target.read(given)
    except target.refusals as error:
        messages = getattr(error, "messages", None) or (str(error),)
        longest = _LONGEST + 2 * len(str(given))  # who wrote a long name into a file of their own gets it back
        if any(not text or "\n" in text or len(text) > longest for text in messages):
            raise BrokenError(f"{target.name}: refused by {str(error)[:200]!r}, expected words on one line") from error
        return False
    except Exception as error:
        raise BrokenError(f"{target.name}: {type(error).__name__} at {place_of(error)}: {str(error)[:200]}") from error
    return True


def place_of(error: BaseException) -> str:
    """Return the line of kai's code that an error came through last."""
    ours = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(str(KAI))]
    return f"{Path(ours[-1].filename).relative_to(KAI.parent)}:{ours[-1].lineno}" if ours else "no line of kai"
