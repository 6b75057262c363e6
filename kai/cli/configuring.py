"""Reading a configuration file that the command line names."""

from pathlib import Path

from kai.api.documents import load_values
from kai.errors import ConfigError, InputError
from kai.framework.configuration import Configuration, read_configuration
from kai.framework.registry import Registry


def load_configuration(path: str, registry: Registry | None = None) -> Configuration:
    """Return the configuration in the file, in the peer's form or in ours.

    Raises: ConfigError.
    """
    try:
        values = load_values(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path}: found {error.strerror or error}, expected a configuration file") from None
    except InputError as error:
        raise ConfigError(*error.messages) from None
    if len(values) > 1:
        raise ConfigError(f"{path}: found {len(values)} documents, expected one")
    return read_configuration(values[0] if values else None, path, registry)
