"""The version of midfill that runs."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The version that is installed; "uninstalled" if the code runs from its folder alone."""
    try:
        return version("midfill")
    except PackageNotFoundError:
        return "uninstalled"
