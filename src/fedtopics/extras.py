"""What is installed: our own version, packages that some functions need, what others add to ours.

Networks, methods, metrics and the like are found by name in a `Registry` each. Another package adds
its own by `Registry.register`, or by an entry point of the registry's group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from fedtopics.errors import FedTopicsError, StudyError, nearest

VERSION = "0.1.0"
Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Things of one kind by name: ours, registered ones, and those of installed packages.

    Two items are told apart by module and name of their `maker`, by default of themselves.
    """

    def __init__(
        self,
        what: str,  # one of them, for messages: "network"
        group: str,  # of the entry points of installed packages
        ours: Mapping[str, str] | None = None,  # "module:name", loaded when it is asked for
        maker: Callable[[Item], Any] = lambda item: item,
    ) -> None:
        self._what = what
        self._group = group
        self._ours = dict(ours or {})
        self._maker = maker
        self._items: dict[str, Item] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All names: ours first, then registered ones and those of installed packages."""
        installed = (entry.name for entry in entry_points(group=self._group))
        return tuple(dict.fromkeys([*self._ours, *self._items, *installed]))

    def register(self, name: str, item: Item) -> Item:
        """Make an item known under a name; StudyError if another one has it.

        What has the same module and name replaces it: its module was loaded again.
        """
        if name in self._ours:
            self.find(name)
        taken, new = self._full_name(self._items.get(name, item)), self._full_name(item)
        if taken != new:
            raise StudyError(
                f"The {self._what} {new} has the name {name!r}, which is that of {taken}; give it "
                "a name of its own."
            )
        self._items[name] = item
        return item

    def find(self, name: str) -> Item:
        """Return what has a name; StudyError if nothing has, or its package cannot be loaded."""
        if name not in self._items and name in self._ours:
            module, _, attribute = self._ours[name].partition(":")
            with needs_torch(f"The {self._what} {name!r}"):
                self._items[name] = getattr(import_module(module), attribute)
        if name not in self._items:
            self._load_installed(name)
        if name not in self._items:
            raise StudyError(
                f"There is no {self._what} {name!r}; {nearest(name, self.names)} Others are found "
                "once they are installed or registered."
            )
        return self._items[name]

    def _load_installed(self, name: str) -> None:
        for entry in entry_points(group=self._group, name=name):
            try:
                item = entry.load()
            except Exception as error:  # a package of somebody else: almost any kind
                raise StudyError(
                    f"The {self._what} {name!r} of the installed {entry.value} cannot be loaded "
                    f"({type(error).__name__}); install its package anew."
                ) from None
            self.register(getattr(item, "name", name), item)

    def _full_name(self, item: Item) -> str:
        maker = self._maker(item)
        return f"{maker.__module__}.{maker.__qualname__}"


def load_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which loads a name's module when it is first used."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load


def compiled(function: Callable[..., Any], fastmath: bool = True) -> Callable[..., Any]:
    """Compile a function by numba, and keep the result on disk where that can be written.

    Without `fastmath` each operation is rounded as it stands there, on any processor.
    """
    from numba import njit

    # Division by zero is infinite: where it raises, loops are not vectorised.
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        fast: Callable[..., Any] = njit(function, cache=True, **options)
    except RuntimeError:  # neither the package's folder nor a home can be written
        fast = njit(function, **options)
    return fast


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Raise FedTopicsError if torch is missing, which networks alone need, by what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise FedTopicsError(
            f"{what} needs the package torch, which is not installed; install it with: "
            "pip install 'fedtopics[neural]'"
        ) from None


def require(what: str, install: str, *packages: tuple[str, str]) -> None:
    """Raise FedTopicsError if a package is not installed, given as pairs of module and package.

    `what` is a sentence's beginning: "The experiments need"; `install` goes behind "pip install".
    """
    for module, package in packages:
        if find_spec(module) is None:
            raise FedTopicsError(
                f"{what} the package {package}, which is not installed; install it with: "
                f"pip install {install}"
            )
