"""Sums by which groups of documents are compared: shares by group, and formulas, with errors."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import LAST, NEVER, Reply, of_method, published
from fedtopics.contract.replies import Bounds, Template, sums
from fedtopics.errors import StudyError
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.comparisons import (
    Cut,
    Design,
    persons_hide,
    persons_in,
    rows_kept,
    shape_of,
)
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model.effects import Effects, GroupTable, coefficients_of, products, squares
from fedtopics.model.formulas import Formula, scales

Counted = Mapping[str, Any]
Owners = NDArray[np.int64]
"""The person of each document."""
MOST_DOCUMENTS_OF_ONE = 10_000  # of a person, for the bounds of squared scores
COMPARES = of_method(TopicSettings, lambda s: LAST if s.compared else NEVER)
MOST_CLIENTS = 1 << 20


def cut_of(settings: TopicSettings, counted: Counted, least: int, clients: int) -> Cut:
    return Cut(
        columns=settings.compared,
        formulas=[Formula.read(text, settings.compared) for text in settings.effects],
        counted=counted,
        least=least,
        clients=clients,
    )


def person_bounds(settings: TopicSettings) -> Template:
    columns = settings.compared
    return {
        "persons": sums(*shape_of(columns), per_document=1),
        "clients": {name: sums(len(columns[name].names), most=MOST_CLIENTS) for name in columns},
    }


def least_squares_bounds(
    settings: TopicSettings, counted: Counted, least: int, clients: int
) -> Template:
    cut = cut_of(settings, counted, least, clients)
    sizes = {design.key: len(cut.names(design)) for design in cut.designs}
    k = settings.n_components
    return {
        "xx": {key: Bounds((p, p), per_document=4) for key, p in sizes.items()},
        "xy": {key: Bounds((p, k), per_document=4) for key, p in sizes.items()},
        "yy": {key: sums(k, per_document=4) for key in sizes},
        "counts": {key: sums(3, per_document=1) for key in sizes},
        "groups": {key: sums(p, p, per_document=1) for key, p in sizes.items()},
    }


def largest_counts(settings: TopicSettings, _: int) -> Reply:
    """Return counts by which all groups are shown."""
    most = person_bounds(settings)
    return {
        "counted": {
            "persons": np.full(most["persons"].shape, 1e6),
            "clients": {name: np.full(of.shape, 1e6) for name, of in most["clients"].items()},
        },
        "least": 1,
        "clients": 1,
    }


def square_bounds(
    settings: TopicSettings, counted: Counted, means: Counted, least: int, clients: int
) -> Template:
    cut = cut_of(settings, counted, least, clients)
    shapes = {
        design.key: (settings.n_components, p) if design.cells else (settings.n_components, p, p)
        for design in cut.designs
        if design.key in means and (p := len(cut.names(design)))
    }
    return {
        "squares": {
            key: Bounds(shape, per_document=4 * MOST_DOCUMENTS_OF_ONE)
            for key, shape in shapes.items()
        }
    }


class GroupSums(SharedFunctions):
    """What clients send to compare groups of documents."""

    @published(
        "For each combination of levels of the study's columns, the number of persons, each by the "
        "share of her documents; for each level, whether the client has it. The number of "
        "documents.",
        "persons by group",
        often=COMPARES,
        reply=person_bounds,
    )
    def group_counts(self) -> Reply:
        columns = self.client.settings.compared
        codes, owners, rows = self._coded()
        shape = shape_of(columns)
        cells = np.ravel_multi_index([*codes.values()], shape)
        return {
            "persons": persons_in(cells, owners, prod(shape)).reshape(shape),
            "clients": {
                name: (np.bincount(codes[name], minlength=len(column.names)) > 0).astype(np.float64)
                for name, column in columns.items()
            },
            "documents": self.client.over(rows),
        }

    @published(
        "For each table of groups and each formula, sums over documents of products of their "
        "columns and of these with shares of topics (X'X, X'theta), and of squared shares; numbers "
        "of documents, persons and clients. Groups of documents of few persons are left out or "
        "together with others. Sums by group and within clients together tell nearly how many "
        "documents of a group each client has. The number of documents.",
        "shares of topics by group",
        often=COMPARES,
        reply=least_squares_bounds,
        largest=largest_counts,
    )
    def group_sums(self, /, counted: Counted, least: int, clients: int, **model: Any) -> Reply:
        return self._of_designs(
            cut_of(self.client.settings, counted, least, clients),
            model,
            lambda design, x, theta, owners: products(x, theta, owners, design.within),
        )

    @published(
        "For each table of groups and each formula, with its coefficients, the sums over persons "
        "of squared scores: of how far their documents' shares of topics are from those expected; "
        "products of two columns only if enough persons have both. The number of documents.",
        "spread of shares by group",
        often=COMPARES,
        reply=square_bounds,
        largest=lambda settings, n_words: {
            **(largest := largest_counts(settings, n_words)),
            "means": dict.fromkeys(least_squares_bounds(settings, **largest)["xx"]),
            "groups": {},
        },
    )
    def group_squares(
        self,
        /,
        counted: Counted,
        means: Counted,
        groups: Counted,
        least: int,
        clients: int,
        **model: Any,
    ) -> Reply:
        def of_design(design: Design, x: Any, theta: Numbers, owners: Owners) -> Reply:
            scores = squares(
                x=x,
                theta=theta,
                coefficients=means[design.key],
                owners=owners,
                within=design.within,
                cells=bool(design.cells),
            )
            # A product of two columns would be that of the few persons who have both.
            few = (groups[design.key] > 0) & (groups[design.key] < least)
            return {"squares": scores * (1 if design.cells else ~few)}

        cut = cut_of(self.client.settings, counted, least, clients)
        return self._of_designs(cut, model, of_design, only=means)

    def _coded(self) -> tuple[dict[str, NDArray[np.int64]], Owners, NDArray[np.int64]]:
        """Return the levels of the documents that count, their persons, and their rows."""
        client = self.client
        columns = client.settings.compared
        rows = client.usable
        corpus = client.corpus.take(rows)
        codes = {name: column.codes(corpus, name) for name, column in columns.items()}
        owners = corpus.person_numbers
        if not (client.site.masked and client.site.policy.counts_of_all):
            cells = np.ravel_multi_index([*codes.values()], shape_of(columns))
            used = rows_kept(cells, owners, client.min_persons)
            codes = {name: code[used] for name, code in codes.items()}
            rows = rows[used]
            owners = owners[used]
        return codes, np.unique(owners, return_inverse=True)[1], rows

    def _of_designs(
        self,
        cut: Cut,
        model: Mapping[str, Any],
        sums_of: Callable[[Design, sparse.csr_array, Numbers, Owners], Reply],
        only: Counted | None = None,
    ) -> Reply:
        client = self.client
        masked = client.site.masked and client.site.policy.counts_of_all
        if masked and (cut.least < client.min_persons or cut.clients < client.guard.clients):
            raise StudyError(
                f"Client {client.name!r} was asked for groups of {cut.least} persons or more, but "
                f"its policy requires {client.min_persons}; restart the study."
            )
        codes, owners, rows = self._coded()
        theta = np.zeros((client.bag.shape[0], client.n_topics(**model)))
        for places, batch in client.thetas(**model):
            theta[places] = batch
        values = cut.values(codes, client.corpus.take(rows))
        reply: Reply = {"documents": client.over(rows)}
        for design in cut.designs:
            if only is None or design.key in only:
                x = cut.matrix(design, values)[0]
                if design.by_client and not persons_hide(x, owners, client.min_persons):
                    x = x[:0]
                n = x.shape[0]
                for name, array in sums_of(design, x, theta[rows[:n]], owners[:n]).items():
                    reply.setdefault(name, {})[design.key] = array
        return reply


def compare_groups(
    agreement: Agreement, settings: TopicSettings, model: Mapping[str, Any]
) -> tuple[tuple[GroupTable, ...], tuple[Effects, ...]]:
    """Compare groups over all clients in three steps: counts, sums, and squares."""
    if not settings.compared:
        return (), ()
    counted = agreement.ask_once(GroupSums.group_counts)
    counted = {name: counted[name] for name in ("persons", "clients")}
    rules: Any = {"counted": counted, "least": agreement.least, "clients": agreement.least_clients}
    cut = cut_of(settings, **rules)
    total = agreement.ask_once(GroupSums.group_sums, **rules, **model) if cut.designs else {}
    means: dict[str, Numbers] = {}
    # Columns, formulas, and what turns out to depend on others only in the sums.
    refused = dict(cut.notes)
    refused |= {f.text: why for f in cut.formulas if (why := cut.why_not(f))}
    keys = {design.key for design in cut.designs}
    refused = {text: why for text, why in refused.items() if text not in keys}
    for design in cut.designs:
        try:
            means[design.key] = _coefficients(design, _of(design, total))
        except StudyError as error:
            refused[design.formula.text if design.formula else design.key] = str(error)
    spread: Reply = {}
    if means:
        spread = agreement.ask_once(
            GroupSums.group_squares, **rules, means=means, groups=total["groups"], **model
        )["squares"]
    computed = [design for design in cut.designs if design.key in means]
    tables = (
        GroupTable.of(
            columns=design.columns,
            groups=design.cells,
            sums=_of(design, total),
            spread=spread[design.key],
            note=cut.notes.get(design.key, ""),
        )
        for design in computed
        if design.cells
    )
    effects = (
        Effects.of(
            formula=design.key if design.formula is None else design.formula.text,
            terms=cut.names(design),
            sums=_of(design, total),
            spread=spread[design.key],
            within=design.within,
            scales=scales(cut.names(design), settings.compared),
        )
        for design in computed
        if not design.cells
    )
    refusals = (Effects.refusal(text, why) for text, why in refused.items())
    return (*tables,), (*refusals, *effects)


def _of(design: Design, total: Reply) -> Reply:
    return {name: part[design.key] for name, part in total.items() if name != "documents"}


def _coefficients(design: Design, sums: Reply) -> Numbers:
    """Return a formula's coefficients, or the mean of each group."""
    return (
        np.asarray(sums["xy"] / np.maximum(np.diag(sums["xx"]), 1)[:, None])
        if design.cells
        else coefficients_of(sums)
    )
