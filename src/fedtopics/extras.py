"""Optional packages, and registries to which other packages can add.

Another package adds a network, method or metric with `Registry.register` or an entry point.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from fedtopics.errors import FedTopicsError, StudyError, nearest_names

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """A table of items by name: built-in, registered, or from entry points of other packages."""

    def __init__(
        self,
        what: str,  # noun for messages, such as "network"
        group: str,  # entry point group of installed packages
        built_in: Mapping[str, str] | None = None,  # "module:name", loaded on first use
        maker: Callable[[Item], Any] = lambda item: item,  # its module and name identify an item
        items: Mapping[str, Item] | None = None,  # loaded ones, from the beginning
    ) -> None:
        self._what = what
        self._group = group
        self._built_in = dict(built_in or {})
        self._maker = maker
        self._items = dict(items or {})

    @property
    def names(self) -> tuple[str, ...]:
        """All names: built-in ones first, then registered ones, then entry points."""
        installed = (entry.name for entry in entry_points(group=self._group))
        return tuple(dict.fromkeys([*self._built_in, *self._items, *installed]))

    def register(self, name: str, item: Item) -> Item:
        """Register an item; StudyError if another one has the name."""
        if name in self._built_in:
            self.find(name)
        registered = self._full_name(self._items.get(name, item))
        new = self._full_name(item)
        if registered != new:
            raise StudyError(
                f"The {self._what} {new} has the name {name!r}, which {registered} already has; "
                "choose another name."
            )
        self._items[name] = item
        return item

    def find(self, name: str) -> Item:
        """Return the item with a name; StudyError if it is unknown or cannot be loaded."""
        if name not in self._items and name in self._built_in:
            with needs_torch(f"The {self._what} {name!r}"):
                self._items[name] = resolve_name(self._built_in[name])
        if name not in self._items:
            self._load_installed(name)
        if name not in self._items:
            raise StudyError(
                f"There is no {self._what} {name!r}; {nearest_names(name, self.names)} To use "
                "another one, install or register it first."
            )
        return self._items[name]

    def _load_installed(self, name: str) -> None:
        for entry in entry_points(group=self._group, name=name):
            try:
                item = entry.load()
            except Exception as error:  # third-party code can raise anything
                raise StudyError(
                    f"The {self._what} {name!r} of the installed {entry.value} cannot be loaded "
                    f"({type(error).__name__}); reinstall its package."
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
    """Compile a function with numba and cache it; without `fastmath`, results are reproducible."""
    from numba import njit

    # numpy's error model: loops whose division can raise are not vectorised.
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        fast: Callable[..., Any] = njit(function, cache=True, **options)
    except RuntimeError:  # no folder for the cache is writable
        fast = njit(function, **options)
    return fast


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Raise FedTopicsError if torch is missing, which only networks need."""
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
    """Raise FedTopicsError if a package is missing; `packages` are pairs of module and package."""
    for module, package in packages:
        if find_spec(module) is None:
            raise FedTopicsError(
                f"{what} the package {package}, which is not installed; install it with: "
                f"pip install {install}"
            )
