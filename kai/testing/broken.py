"""How a broken law is told: which law, of which plugin's function, on which cluster, and where in the source."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

import kai
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
    except (BrokenLaw, ConfigError, KeyboardInterrupt):
        raise
    except PluginError as error:
        cause = error.__cause__
        raise BrokenLaw(
            f"{_law(cause, error.hook)}: on cluster {where!r}, {error.hook} {error.args[0]}{_place(cause)}"
        ) from error
    except BaseException as error:
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
    """Return where in the plugin's source an error arose, in brackets; "" if no line of the plugin was reached.

    What a plugin calls may raise deep within a library. The line of the plugin is the one to look at.
    """
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    frame = next((each for each in reversed(frames) if _may_be_a_plugin(Path(each.filename))), None)
    return f" ({Path(frame.filename).name}, line {frame.lineno})" if frame else ""


def _may_be_a_plugin(file: Path) -> bool:
    if any(file.is_relative_to(folder) for folder in _WHO_ASKS):
        return False
    return not file.is_relative_to(_STANDARD) or "site-packages" in file.parts


_KAI: Final = Path(kai.__file__).parent
_WHO_ASKS: Final = (_KAI / "testing", _KAI / "engine", _KAI / "framework", Path(np.__file__).parent)
_STANDARD: Final = Path(sysconfig.get_paths()["stdlib"])
