"""Which version of a package is installed."""

from importlib import metadata

DISTRIBUTION = "kai-scheduler"


def installed(name: str) -> str:
    """Return the version of an installed distribution, "not installed" if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
