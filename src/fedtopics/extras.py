"""What is installed: our own version, and packages that only some of the functions need."""

from __future__ import annotations

from importlib.util import find_spec

from fedtopics.errors import FedTopicsError

VERSION = "0.1.0"


def require(what: str, install: str, *packages: tuple[str, str]) -> None:
    """Refuse to begin without packages.

    Parameters
    ----------
    what : str
        What needs them, as a sentence begins, with its verb: "The experiments need".
    install : str
        What pip is to install.
    packages : pairs of str
        Module and package.

    Raises
    ------
    FedTopicsError
        If one is not installed.
    """
    for module, package in packages:
        if find_spec(module) is None:
            raise FedTopicsError(
                f"{what} the package {package}, which is not installed; install it with: "
                f"pip install {install}"
            )
