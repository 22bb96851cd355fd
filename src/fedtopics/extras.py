"""What is installed: our own version, packages that some functions need, what others add to ours.

Networks, methods, metrics and the like are found by name in a `Registry` each. Another package adds
its own by `Registry.register`, or by an entry point of the registry's group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from fedtopics.errors import FedTopicsError, StudyError

VERSION = "0.1.0"
Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Things of one kind by name: ours, registered ones, and those of installed packages.

    Parameters
    ----------
    what : str
        What they are, for messages: "network".
    group : str
        Group of the entry points by which installed packages name theirs.
    ours : mapping of name to "module:name", optional
        Loaded when they are asked for.
    maker : function (item) -> class or function, optional
        By whose module and name two items are told apart; by default the item itself.
    """

    def __init__(
        self,
        what: str,
        group: str,
        ours: Mapping[str, str] | None = None,
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
        """Make an item known under a name.

        Raises
        ------
        StudyError
            If the name is taken by another one. What has the same module and name as what is there
            replaces it: its module was loaded again.
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
        """Return what has a name.

        Raises
        ------
        StudyError
            If there is none, or the package that has it cannot be loaded.
        """
        if name not in self._items and name in self._ours:
            module, _, attribute = self._ours[name].partition(":")
            self._items[name] = getattr(import_module(module), attribute)
        if name not in self._items:
            self._load_installed(name)
        if name not in self._items:
            raise StudyError(
                f"There is no {self._what} {name!r}; known: {', '.join(self.names)}. Install or "
                "register it."
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
    """Return a package's ``__getattr__``, which loads a name's module when it is first used.

    Parameters
    ----------
    package : str
    homes : mapping of name to module within the package
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load


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
