"""What the reference takes from the code: help of commands, settings, functions of clients.

A page has `<!-- commands -->` where the text of `commands` is to stand, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
from pydantic import BaseModel

from fedtopics import cli
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import ClientData, fields_of
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.final import LastSums
from fedtopics.methods.registry import METHODS, Method, exchanges_of, find_method
from fedtopics.metrics import METRICS
from fedtopics.privacy.recipe import RECIPES


def commands() -> str:
    """Show every command's --help, word by word."""
    return "\n".join(_helps(cli.app, None, "fedtopics"))


def _helps(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, max_content_width=90)
    context.help_option_names = ["-h", "--help"]
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            yield from _helps(inner, context, name)


def settings() -> str:
    """Show every key of a study and of a policy: its default and its meaning."""
    study = Study()
    parts = ["## A study\n", *_table(study)]
    for key in ("about", "text", "vocabulary", "federation"):
        parts += [f"\n## [{key}]\n", *_table(getattr(study, key))]
    parts += ["\n## [clients.NAME]\n", *_table(ClientData())]
    for name in METHODS.names:
        method = Study.make(method={"name": name}).method
        parts += [f'\n## [method] name = "{name}"\n', *_table(method, groups=True)]
    return "\n".join([*parts, "\n## A policy\n", *_table(Policy())])


def _table(model: BaseModel, *, groups: bool = False) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "| --- | --- | --- |"
    yield from _rows(model, "")
    for key, _ in fields_of(type(model)) if groups else ():
        if isinstance(group := getattr(model, key), BaseModel):
            yield from _rows(group, f"{key}.")


def _rows(model: BaseModel, table: str) -> Iterator[str]:
    for key, field in fields_of(type(model)):
        value = getattr(model, key)
        if not isinstance(value, BaseModel) and key != "clients":  # these have their own tables
            meaning = str(field.description).replace("|", "\\|")
            yield f"| `{table}{key}` | {_shown(value)} | {meaning} |"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{str(plain).lower() if isinstance(plain, bool) else plain}`"


def clients() -> str:
    """Say which functions a study with default settings calls, and what each sends."""
    places: dict[type, list[str]] = {}
    parts = []
    for name in METHODS.names:
        for client, title, settings in _variants(find_method(name)):
            parts += [f"\n## {title}\n", "| function | how often | what leaves |"]
            parts.append("| --- | --- | --- |")
            for exchange in exchanges_of(client, settings):
                leaves = exchange.leaves.replace("|", "\\|")
                parts.append(f"| `{exchange.function}` | {exchange.often} | {leaves} |")
            kinds = client, *client.exchanges, LastSums
            for place in dict.fromkeys(base for kind in kinds for base in kind.__mro__):
                own = [name for name in vars(place) if name in client.functions()]
                names = places.setdefault(place, [])
                names += sorted({*own} - {*names})
    shared = {place: names for place, names in places.items() if names}
    for place, names in sorted(shared.items(), key=lambda entry: len(entry[0].__mro__)):
        parts += [f"\n## {place.__name__}\n", "| function | what leaves |", "| --- | --- |"]
        parts += [f"| `{name}` | {vars(place)[name].leaves} |" for name in names]
        parts.append(
            f"\n::: {_full(place)}\n"
            "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
            f"      members: {names}"
        )
    return "\n".join(parts)


def _variants(method: Method) -> Iterator[tuple[type[TopicClient[Any]], str, Any]]:
    """Yield a method's client, a title and settings: without privacy, and with it if it can."""
    yield method.client, f"`{method.name}`", method.settings()
    if method.name in RECIPES.names:
        recipe = RECIPES.find(method.name)
        settings = method.settings(**recipe.usual)
        yield recipe.client, f"`{method.name}` with `[differential_privacy]`", settings


def metrics() -> str:
    """Say which metrics `fedtopics evaluate` computes, and of what."""
    rows = (
        f"| `{metric.name}` | {metric.title} | {', '.join(metric.takes)} |"
        for metric in map(METRICS.find, METRICS.names)
    )
    return "\n".join(["| metric | what it is | of |", "| --- | --- | --- |", *rows])


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "clients": clients,
    "metrics": metrics,
}
