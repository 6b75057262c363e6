"""Which version of a package is installed."""

DISTRIBUTION = "kai-scheduler"


def installed(name: str) -> str:
    """Return the version of an installed distribution, "not installed" if there is none."""
    from importlib import metadata  # noqa: PLC0415 - it costs as much as all the rest of a help text

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
