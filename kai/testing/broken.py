"""How a broken law is told: which law, of which plugin's function, on which cluster, and where in the source."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kai.errors import ConfigError, PluginError, told

NOTHING_WRITTEN = "a plugin writes nothing"


class BrokenLaw(AssertionError):  # noqa: N818 - it reads as what it is: BrokenLaw: scores are finite
    """A plugin does not keep a law; the message names the law, the cluster and what was seen."""


@contextmanager
def blaming(asked: str, where: str) -> Iterator[None]:
    """Turn whatever a plugin raises while it is ``asked`` something into a broken law on cluster ``where``.

    Raises: BrokenLaw; ConfigError as it is, since options and clashes are told by name already.
    """
    try:
        yield
    except (BrokenLaw, ConfigError):
        raise
    except PluginError as error:
        cause = error.__cause__
        raise BrokenLaw(
            f"{_law(cause, error.hook)}: on cluster {where!r}, {error.hook} {error.args[0]}{_place(cause)}"
        ) from error
    except (Exception, SystemExit) as error:
        found = f"raised {told(error)}"
        raise BrokenLaw(f"{_law(error, asked)}: on cluster {where!r}, {asked} {found}{_place(error)}") from error


def shown(value: object) -> str:
    """Return ``value`` on one line: of an array its type, shape and first elements."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {np.array2string(value.ravel()[:8], separator=', ')}"
    return f"{type(value).__name__} {value!r}"


def _law(error: BaseException | None, asked: str) -> str:
    if error is None:
        return f"{asked} returns what its extension point says"
    if isinstance(error, ValueError) and "read-only" in str(error):
        return NOTHING_WRITTEN
    return f"{asked} answers and raises nothing"


def _place(error: BaseException | None) -> str:
    """Return where in the source an error arose, in brackets."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


__all__ = ["NOTHING_WRITTEN", "BrokenLaw", "blaming", "shown"]
