"""Libraries that come with an extra of kai: loaded where they are used, and named with what installs them."""

import importlib
from typing import Any

from kai.errors import ConfigError


def load_extra(module: str, extra: str, use: str) -> Any:  # noqa: ANN401 - libraries without types
    """Return a library that comes with an extra; ``use`` says what is done by which library.

    Raises: ConfigError that says how to install it, where it is not.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing(extra, use) from None


def missing(extra: str, use: str) -> ConfigError:
    """Return the error for an extra that is not installed."""
    return ConfigError(f"{use}; install it with pip install 'kai-scheduler[{extra}]'")


__all__ = ["load_extra", "missing"]
