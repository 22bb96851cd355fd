"""What the reference takes from the code: commands, settings, messages, errors, evidence.

Pages have it between `<!-- begin NAME -->` and `<!-- end NAME -->`. `make generate` writes it; the
site adds what it reads from docstrings, the lines below `:::`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

import fedtopics
from fedtopics import cli, errors
from fedtopics.contract.published import description_of
from fedtopics.federation.data_sent import ALL_SEE, TOTAL, TableMaker
from fedtopics.federation.exposure import expose
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import ClientData, fields_of
from fedtopics.files import read_toml
from fedtopics.guarantees import not_promised
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.final_model import LastSums
from fedtopics.methods.core.group_sums import GroupSums
from fedtopics.methods.registry import METHODS, Method, find_method
from fedtopics.metrics import METRICS
from fedtopics.privacy.recipe import RECIPES
from fedtopics.protocol.clients import STEPS
from fedtopics.report.egress_record import EgressRecord
from fedtopics.text.vocabulary import VocabularyLimits


def commands() -> str:
    """Show every command's --help, word by word."""
    return "\n".join(_helps(cli.app, None, "fedtopics"))


def _helps(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, max_content_width=90)
    context.help_option_names = []
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


def table_maker(settings: Any) -> TableMaker:
    """Return what makes rows for two clients with the default number of words."""
    return TableMaker(
        clients=["north", "south"],
        is_secure=settings.adds_up,
        n_words=5000,
        most_proposed=VocabularyLimits().most_proposed,
    )


def clients() -> str:
    """Say which functions a study with default settings calls, and what each sends."""
    places: dict[type, list[str]] = {}
    parts = []
    for name in METHODS.names:
        for client, title, settings in _variants(find_method(name)):
            parts += [f"\n## {title}\n", "| function | when | what is sent | who sees it | from |"]
            parts.append("| --- | --- | --- | --- | --- |")
            for row in table_maker(settings).of_client(client, settings):
                data_sent = row.data_sent.replace("|", "\\|")
                parts.append(
                    f"| `{row.function}` | {row.often} | {data_sent} | {row.seen} | {row.over} |"
                )
            kinds = client, *client.exchanges, LastSums, GroupSums
            for place in dict.fromkeys(base for kind in kinds for base in kind.__mro__):
                own = [name for name in vars(place) if name in client.functions()]
                names = places.setdefault(place, [])
                names += sorted({*own} - {*names})
    parts += ["\n## Secure aggregation\n", "| step | when | what is sent | who sees it | from |"]
    parts.append("| --- | --- | --- | --- | --- |")
    for step in STEPS:
        seen = ALL_SEE if step.seen_by_all else TOTAL
        parts.append(
            f"| `{step.name}` | {step.often(None)} | {step.data_sent} | {seen} | {step.over.text} |"
        )
    shared = {place: names for place, names in places.items() if names}
    for place, names in sorted(shared.items(), key=lambda entry: len(entry[0].__mro__)):
        parts += [f"\n## {place.__name__}\n", "| function | what is sent |", "| --- | --- |"]
        parts += [f"| `{name}` | {description_of(vars(place)[name]).data_sent} |" for name in names]
        parts.append(
            f"\n::: {_full(place)}\n"
            "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
            f"      members: {names}"
        )
    return "\n".join(parts)


def shared() -> str:
    """Say in a few words what each method sends before, in and after its rounds."""
    tables = {name: _short(find_method(name)) for name in METHODS.names}
    common = set.intersection(*({*rows} for rows in tables.values() if ("vocabulary", 0) in rows))
    parts = [
        "| method | before the rounds | each round | at the end | a client sends |",
        "| --- | --- | --- | --- | --- |",
    ]
    of_all = {key: tables["nmf"][key] for key in tables["nmf"] if key in common}
    parts.append(_row("all but F-LDA", of_all, ""))
    for name, rows in tables.items():
        own = {key: short for key, short in rows.items() if key not in common}
        most = expose(Study.make(method={"name": name}).with_clients("abc")).bytes
        parts.append(_row(find_method(name).title, own, f"{most / 1e6:,.0f} MB"))
    return "\n".join(parts)


def _short(method: Method) -> dict[tuple[str, int], str]:
    """Return what a method's functions send, by function and by when it is called."""
    often = method.client.in_study(method.settings())
    about = method.client.functions()
    return {
        (name, phase): about[name].short + (" (seen by all)" if about[name].seen_by_all else "")
        for name, calls in often.items()
        for phase, number in enumerate((calls.times + calls.before, calls.per_round, calls.at_end))
        if number and not calls.instead
    }


def _row(title: str, rows: dict[tuple[str, int], str], most: str) -> str:
    cells = [
        "; ".join(dict.fromkeys(t for (_, at), t in rows.items() if at == phase))
        for phase in range(3)
    ]
    return f"| {title} | {' | '.join(cells)} | {most} |"


def _variants(method: Method) -> Iterator[tuple[type[TopicClient[Any]], str, Any]]:
    """Yield a method's client, a title and settings: without privacy, and with it if it can."""
    yield method.client, f"`{method.name}`", method.settings()
    if method.name in RECIPES.names:
        recipe = RECIPES.find(method.name)
        settings = method.settings(**recipe.defaults)
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


def names() -> str:
    """List what `import fedtopics` offers, with the methods of its classes."""
    parts = ["| name | what it is |", "| --- | --- |"]
    parts += [f"| `{name}` | {_first(getattr(fedtopics, name))} |" for name in fedtopics.__all__]
    for kind in (fedtopics.TopicEstimator, fedtopics.TopicModel, fedtopics.Corpus, fedtopics.Study):
        parts += [f"\n### {kind.__name__}\n", "| method | what it does |", "| --- | --- |"]
        for name, value in inspect.getmembers(kind):
            is_own = str(getattr(value, "__module__", "")).startswith("fedtopics")
            if inspect.isroutine(value) and is_own and name[0] != "_":
                parts.append(f"| `{name}` | {_first(value)} |")
    return "\n".join(parts)


def _first(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", r"\|")


def messages() -> str:
    """List every message of an error by the kind of error, read from the source code."""
    found: dict[str, set[str]] = {}
    for path in sorted(Path(fedtopics.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for kind, message in _raised(node):
                text = _message(message)
                if len(text.split()) > 3:
                    found.setdefault(kind.split(".")[-1], set()).add(text)
    parts = []
    for kind in [each for each in vars(errors) if each in found]:
        error = getattr(errors, kind)
        parts.append(f"\n## {kind}\n\n{_first(error)} Exit code {error.exit_code}.\n")
        parts += [f"- {text}" for text in sorted(found.pop(kind), key=_order)]
    parts.append("\n## Of one setting\n\nThe key comes first. Exit code 2.\n")
    parts += [f"- {text}" for text in sorted(found.pop("ValueError"), key=_order)]
    return "\n".join(parts)


def _raised(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the kind and the message of each error that a statement or `refuse` raises."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
        yield ast.unparse(node.exc.func), node.exc.args[0]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("refuse"):
        kinds = [ast.unparse(keyword.value) for keyword in node.keywords]
        for problem in getattr(node.args[0], "keys", ()):
            yield "".join(kinds) or "ValueError", problem


def _order(text: str) -> tuple[str, str]:
    return re.sub(r"\W", "", re.sub(r"`[^`]*`", "", text)).casefold(), text


def _message(node: ast.expr) -> str:
    """Return a message with the names of the values in it, as code."""
    if isinstance(node, ast.Constant):
        return str(node.value).replace("<", "&lt;").replace("*", r"\*")
    if isinstance(node, ast.BinOp):
        return _message(node.left) + _message(node.right)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(
        f"`{_name(part.value)}`" if isinstance(part, ast.FormattedValue) else _message(part)
        for part in parts
    )


def _name(value: ast.expr) -> str:
    return [*re.findall("[A-Za-z_]+", f"VALUE {ast.unparse(value)}")][-1].strip("_").upper()


def promises(aggregation: str) -> list[dict[str, Any]]:
    """Return the rows of promises.toml for a kind of aggregation, of which one is a member."""
    names = {"who": "a member", "rest": "the sum of the updates of the other members"}
    rows = read_toml(Path(__file__).with_name("promises.toml"))["promises"]
    return [
        {key: row[key].format(**names) for key in ("adversary", "sees", "can")}
        | {"tests": row.get("tests", [])}
        for row in rows
        if row.get("aggregation", aggregation) == aggregation
    ]


def evidence() -> str:
    """Name the tests of each promise, and the attacks that are measured."""
    parts = []
    for aggregation in ("secure", "plain"):
        parts += [f"\n## Promises with {aggregation} aggregation\n"]
        parts += ["| against | it sees | it can still | tests |", "| --- | --- | --- | --- |"]
        for row in promises(aggregation):
            tests = ", ".join(f"[{Path(test).stem}](../../{test})" for test in row["tests"])
            parts.append(f"| {row['adversary']} | {row['sees']} | {row['can']} | {tests} |")
    parts += ["\n## Not promised\n", *(f"- {sentence}" for sentence in not_promised())]
    parts += ["\n## Attacks\n", "| script | what it does |", "| --- | --- |"]
    for path in sorted((ROOT / "benchmarks/attacks").glob("[!_]*.py")):
        text = str(ast.get_docstring(ast.parse(path.read_text("utf-8"))))
        first = " ".join(text.split("\n\n")[0].split())
        parts.append(f"| [{path.stem}](../../{path.relative_to(ROOT)}) | {first} |")
    return "\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "clients": clients,
    "shared": shared,
    "metrics": metrics,
    "names": names,
    "messages": messages,
    "evidence": evidence,
}
ROOT = Path(__file__).parents[2]
PART = re.compile(r"(<!-- begin (\w+) -->\n).*?(?=<!-- end \2 -->)", re.DOTALL)


def schemas() -> dict[Path, str]:
    """Return the JSON schemas of records for other programs, by file."""
    schema = json.dumps(EgressRecord.model_json_schema(), indent=2)
    return {ROOT / "docs/reference/egress.schema.json": f"{schema}\n"}


def filled(text: str, *, site: bool = False) -> str:
    """Return a page with its parts; only the site understands the lines that begin with `:::`."""

    def made(found: re.Match[str]) -> str:
        part = PARTS[found[2]]()
        if not site:
            part = re.sub(r"\n*^:::.*\n(?: +.*\n?)*", "\n", part, flags=re.MULTILINE)
        return f"{found[1]}\n{part.strip()}\n\n"

    return PART.sub(made, text)


if __name__ == "__main__":
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    for path, content in schemas().items():
        path.write_text(content, "utf-8")
