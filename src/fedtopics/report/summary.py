"""The content of a report, as plain data."""

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, groupby
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.federation.data_sent import ALL_SEE, NOT_RECORDED
from fedtopics.federation.policy import Policy
from fedtopics.federation.study_tables import About
from fedtopics.methods.registry import find_method
from fedtopics.model import figures
from fedtopics.model.card import counted_units, merger, of_one_client, promise, why_number
from fedtopics.model.over_time import CHANGE, Grouped, changes, grouped_by_time
from fedtopics.model.shown_words import LISTED_WORDS, WordRanking
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import findings, header
from fedtopics.report.run import RunFacts
from fedtopics.text.corpus import Corpus
from fedtopics.text.grouping import TIME
from fedtopics.text.repeated import repeated_passages
from fedtopics.versions import VERSION

Summary = dict[str, Any]
STEPS = tuple(step / 10 for step in range(11))  # values of lambda in the full list
EXAMPLES = 3  # documents of a topic
EXCERPT = 400  # characters shown of a document
MOST_GROUPS = 40  # of a column whose shares are shown
SHOWN_ROUNDS = 40  # of F-LDA, the last
SERVER_SAW = (
    "No document left its client. The server saw sums over documents, and the words that "
    "documents of enough persons have. A reader of this report sees the words of topics."
)
UNMASKED = "Aggregation was plain: the server saw the updates of each client, one by one."
NOISY = (
    "No document left its client. Aggregation was secure: the server saw no update and no total. "
    "Members saw totals over all clients, with noise."
)
MASKED = (
    "No document left its client. Aggregation was secure: the server saw no update and no total. "
    "Members saw totals over all clients, the words that documents of enough persons have, and "
    "what this report shows about each client."
)
SEEN_BY_ALL = "Sent without secure aggregation, so that all members saw it for each client: {}."
FACTS = "round", "loss", "documents", "bytes", "seconds"  # of a round
PACKAGES = ("numpy", "torch", "scikit-learn", "grpcio")


def summarise(
    model: TopicModel,
    run: RunFacts | None = None,
    *,
    min_documents: int | None = None,
    documents: Any = None,
    with_text: bool = False,
    over_time: Grouped | None = None,
) -> Summary:
    """Return the content of a report on a model and its run.

    Parameters
    ----------
    model : TopicModel
    run : RunFacts, optional
    min_documents : int, optional
        Hides a client's share of a topic where it stands for fewer documents; by default the
        minimum of the default policy.
    documents : whatever `Corpus.of` takes, optional
        Documents for examples and a map; do not share such a report.
    with_text : bool
        Whether documents on the map show their beginnings.
    over_time : Grouped, optional
        Topics by period and their change, from `report.over_time`; by default those that the
        federation summed, if any.
    """
    run = run or RunFacts(name="")
    facts = figures.figure_facts(
        model, Policy().min_persons if min_documents is None else min_documents
    )
    if over_time is None and any(table.name == TIME for table in model.groups):
        over_time = grouped_by_time(model, None, None)
    topics = _topics(model, facts["topics"])
    change = changes(over_time or Grouped([]))
    return {
        **facts,
        "title": run.study.get("name") or run.name or "model",
        "found": findings.sentences(
            topics,
            model,
            documents={client["name"]: client["documents"] for client in facts["clients"]},
            change=change,
            estimate=over_time.change if over_time else None,
            kind=facts["kind"],
        ),
        "topics": topics,
        "change": change,
        "similarity": client_similarity(model).tolist(),
        "over_time": over_time.rows if over_time else None,
        **_of_model(model),
        **_of_run(model, run),
        **_of_documents(model, documents, with_text),
    }


def _of_model(model: TopicModel) -> Summary:
    """Return the parts of a summary that need only the model."""
    return {
        "sentences": [merger(model)] if merger(model) else _sentences(model),
        "tree": model.hierarchy(),
        "reading": _reading(model),
        "positions": figures.positions(model.beta).tolist(),
        "effects": [
            figures.effect_facts(model, of) for of in model.estimates if of.formula != CHANGE
        ],
        "groups": [
            figures.group_facts(table)
            for table in model.groups
            if len(table.columns) == 1 and len(table.groups) <= MOST_GROUPS
        ],
        "over_rounds": [  # new and vanished topics in each round of F-LDA
            {
                "round": entry["round"],
                "documents": entry["documents"],
                "topics": len(entry["topics"]),
                "new": [topic["words"] for topic in entry["topics"] if topic["id"] in entry["new"]],
                "vanished": [topic["words"] for topic in entry["vanished"]],
            }
            for entry in model.info.get("history", [])[-SHOWN_ROUNDS:]
        ],
        "scores": findings.scores_of(model),
        "clusters": _clusters(model) if model.shows_clusters else None,
        "versions": _versions(),
    }


def _of_run(model: TopicModel, run: RunFacts) -> Summary:
    """Return the parts of a summary that need the run."""
    member, policy = next(iter(run.policies.items() if run.place == "client" else ()), ("", None))
    return {
        "own": member,
        "facts": header.facts(model, run),
        "policy": policy.described(model.info.get("masked") is False) if policy else "",
        "about": list(About(**run.study.get("about", {})).rows()),
        "rounds": [
            {name: event[name] for name in FACTS if isinstance(event.get(name), (int, float))}
            | ({"clients": len(event["clients"])} if "clients" in event else {})
            for event in run.rounds
        ],
        "absences": [
            row | {"client": model.client_name(row["client"]), "rounds": ranges(row["rounds"])}
            for row in run.absences
        ],
        "clipped": run.clipped,
        "left": _left(run, model),
        "settings": _settings(run, model),
    }


def _of_documents(model: TopicModel, documents: Any, with_text: bool) -> Summary:
    """Return the parts of a summary that show single documents, or None for each."""
    if documents is None:
        return dict.fromkeys(("examples", "document_map", "repeated"))
    corpus = Corpus.of(documents)
    examples: dict[int, list[dict[str, Any]]] = {topic: [] for topic in range(model.n_topics)}
    for row in model.representative_documents(corpus, n_documents=EXAMPLES):
        text = " ".join(row["text"].split())
        begins = text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " …"
        examples[row["topic"]].append({"share": row["share"], "text": begins})
    document_map = model.document_map(corpus, with_text=with_text)
    return {
        "examples": examples,
        "repeated": repeated_passages(corpus),
        "unit": corpus.unit,
        "document_map": {
            "sentence": document_map.sentence,
            "svg": Markup(document_map.svg(in_report=True)),  # noqa: S704 - escaped already
        },
    }


def client_similarity(model: TopicModel) -> NDArray[np.float64]:
    """Return 1 minus Hellinger's distance of clients' mean thetas, (n_clients, n_clients)."""
    roots = np.sqrt(np.array([model.shares[name] for name in sorted(model.shares)]))
    distances = np.linalg.norm(roots[:, None] - roots[None], axis=2) / np.sqrt(2)
    return np.asarray(np.clip(1 - distances, 0, 1))


def _sentences(model: TopicModel) -> list[str]:
    n = len(model.documents)
    what = "clusters" if model.shows_clusters else "topics"
    who = f"{n} clients" if n > 1 else "one client"
    if "privacy" in model.info:
        who = "all clients, counted with noise,"
    # What all members saw of each client, in a few words for each function.
    seen = dict.fromkeys(
        row["short"] for row in model.info.get("data_sent", []) if row["seen"] == ALL_SEE
    )
    rounds = model.info.get("rounds")
    worked = "" if rounds is None else f", in {rounds:,} round{'' if rounds == 1 else 's'}"
    return [
        *([UNMASKED] if model.info.get("masked") is False else []),
        f"{model.n_topics} {what} were found in {sum(model.documents.values()):,} "
        f"{counted_units(model)} of {who} by {_method(model)}{worked}.",
        *_tried(model),
        (NOISY if "privacy" in model.info else MASKED) if model.info.get("masked") else SERVER_SAW,
        *([SEEN_BY_ALL.format(", ".join(seen))] if seen else []),
        *(f"{sentence}." for sentence in (promise(model), of_one_client(model)) if sentence),
    ]


def _tried(model: TopicModel) -> list[str]:
    """Say why the model has this number of topics, if it was chosen."""
    if not (numbers := model.info.get("numbers")):
        return []
    tried = ", ".join(f"{n} ({score:.3f})" for n, score in numbers.items())
    why = (
        "random parts of the documents agree best on clusters, compared with documents without any"
        if model.shows_clusters
        else "topics of some documents then inform best about others"
    )
    chosen = why_number(model.n_topics, model.info.get("range", ()))
    return [f"The number of topics is {chosen}. It was chosen because {why}: {tried}."]


def _method(model: TopicModel) -> str:
    name = model.info.get("method", "?")
    try:
        title = find_method(name).title
    except StudyError:  # the method's package is not installed here
        title = name
    return f"{title} ({model.inference.name})" if name == "gfedntm" else title


def _topics(model: TopicModel, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return topics with ``full`` (word, p(w | k), p(w)) and ``orders``, its ranks by lambda."""
    shares = model.word_shares
    frequency = model.vocabulary.frequency
    readings = [
        model.word_ranking,
        *(WordRanking(step, model.word_ranking.by_sums) for step in STEPS),
    ]
    orders = [reading.order(shares, frequency, LISTED_WORDS) for reading in readings]
    topics = []
    for row in rows:
        k = row["topic"]
        places: dict[int, int] = {}
        ranked = [
            [places.setdefault(column, len(places)) for column in order[k].tolist()]
            for order in orders
        ]
        words = [
            (model.vocabulary.words[i], *(float(f"{x:.4g}") for x in (shares[k, i], frequency[i])))
            for i in places
        ]
        # Fewer than two words have no coherence.
        scores = {name: score for name, score in row["coherence"].items() if np.isfinite(score)}
        topics.append({**row, "coherence": scores, "full": words, "orders": ranked[1:]})
    return topics


def _reading(model: TopicModel) -> dict[str, Any]:
    by = "the words of documents" if model.word_ranking.by_sums else "the decoder"
    first = ", starting with the most coherent ones" if model.word_ranking.first else ""
    if model.word_ranking.class_based:
        return {"relevance": None, "words": f"class-based TF-IDF, from words of documents{first}"}
    return {"relevance": model.word_ranking.relevance, "words": f"relevance, from {by}{first}"}


def _clusters(model: TopicModel) -> dict[str, Any]:
    names = sorted(model.documents)
    sizes = model.info.get("sizes", {})
    unclear = model.info.get("unclear", {})
    return {
        "sizes": {model.client_name(name): sizes[name] for name in names if name in sizes},
        "unclear": {
            model.client_name(name): unclear[name] / max(model.documents[name], 1)
            for name in names
            if name in unclear
        },
    }


def ranges(numbers: Sequence[int]) -> str:
    """Write increasing numbers as ranges: 3 to 5, 7."""
    # Numbers without a gap have the same difference to their positions.
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(f"{run[0]:,}" + (f" to {run[-1]:,}" if run[1:] else "") for run in runs)


def _left(run: RunFacts, model: TopicModel) -> dict[str, Any]:
    replies: dict[str, list[dict[str, Any]]] = {}
    for row in chain.from_iterable(run.ledgers.values()):
        replies.setdefault(row["function"], []).append(row)
    return {
        "functions": [
            {
                "function": name,
                **run.data_sent.get(name, NOT_RECORDED),
                "documents": min(row["documents"] for row in rows),
            }
            | _sums(rows)
            for name, rows in replies.items()
        ],
        "clients": [  # masked sums have their own rows
            {"name": model.client_name(name)} | _sums([row for row in rows if not row["masked"]])
            for name, rows in run.ledgers.items()
        ],
        "seeded": list(run.seeded),
    }


def _sums(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {key: sum(row[key] for row in rows) for key in ("replies", "bytes")}


def _settings(run: RunFacts, model: TopicModel) -> dict[str, Any]:
    """Return the settings by table, and identifiers of study and vocabulary."""
    tables = {
        name: {key: value for key, value in table.items() if not isinstance(value, dict)}
        for name, table in run.study.items()
        if isinstance(table, dict) and name not in ("clients", "about")
    }
    tables |= {
        f"method.{n}": t for n, t in run.study.get("method", {}).items() if isinstance(t, dict)
    }
    started = run.of_kind("started")
    return {
        "tables": tables,
        "seed": run.study.get("seed", model.info.get("seed")),
        "study": started[0]["study"] if started else None,
        "vocabulary": model.vocabulary.fingerprint,
        "words": len(model.vocabulary),
    }


def _versions() -> dict[str, str]:
    versions = {"fedtopics": VERSION, "Python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):  # grpcio is optional without a network
            versions[package] = version(package)
    return versions
