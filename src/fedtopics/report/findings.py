"""The main findings, each with its uncertainty, and the scores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtopics.metrics import mean_cosine_dissimilarity, unique_words
from fedtopics.model.card import counted_units, nearness_basis
from fedtopics.model.effects import Effects
from fedtopics.model.figures import Topic, first_group, in_points, topic_name
from fedtopics.model.formulas import CLIENT
from fedtopics.model.nearness import NOT_MEASURED
from fedtopics.model.over_time import CHANGE, LATER, Change
from fedtopics.model.topic_model import TopicModel

# Of the chance of 5 % that any sentence is false, the parts by kind of sentence
OF_DIFFERENCES = 0.03  # between periods and groups
FEWEST = 30  # persons: more, also if rounded, have to be in both groups of a difference
UNEVEN = 2.0  # periods of more than so many times as many documents are not compared
NAMED = 2  # topics that a sentence names
FIRST_TOPICS = 5  # largest topics whose joint share is reported
SCORES = {
    "nearness": (
        "nearness of documents",
        "up to 2; by how much documents are nearer to a topic's centre if they have the topic",
        "compared with people's answers about 24 topics",
    ),
    "npmi": (
        "coherence, NPMI",
        "-1 to 1; how often a topic's ten first words occur together in the clients' documents, "
        "compared with chance",
        "Bouma 2009; Lau, Newman and Baldwin 2014",
    ),
    "c_v": (
        "coherence, C_V",
        "-1 to 1; high if a topic's ten first words occur with the same words among these ten",
        "Röder, Both and Hinneburg 2015",
    ),
    "u_mass": (
        "coherence, U_Mass",
        "up to 0; high if a topic's words often occur in documents with its more important ones",
        "Mimno et al. 2011",
    ),
    "diversity": (
        "topic diversity",
        "0 to 1; share of different words in the list of all topics' ten first words",
        "Dieng, Ruiz and Blei 2020",
    ),
    "dissimilarity": (
        "mean cosine dissimilarity",
        "0 to 1; high if topics rarely give the same words a high probability",
        "1 - the mean cosine of two topics' word probabilities",
    ),
}


@dataclass(frozen=True)
class Question:
    """Whether topics differ between two groups or more; the answer is named with its interval."""

    about: str
    estimate: Effects
    places: Mapping[str, str]  # by term: where the topic is more or less frequent
    verbs: tuple[str, str]
    nothing: str
    obstacle: str = ""  # why there is no answer

    def answer(self, topics: Mapping[int, Topic], level: float) -> str:
        """Name the largest differences whose intervals of this level exclude 0."""
        if self.obstacle:
            return f"{self.about}: there is no comparison, as {self.obstacle}."
        clear = [
            row
            for row in sorted(self.estimate.rows(level), key=lambda row: -abs(row["estimate"]))
            if row["term"] in self.places and row["low_of_all"] * row["high_of_all"] > 0
        ]
        parts = [self._difference(topics[row["topic"]], row) for row in clear[:NAMED]]
        return f"{self.about}: {'; '.join(parts) or self.nothing}.{self._basis if parts else ''}"

    def _difference(self, topic: Topic, row: Mapping[str, Any]) -> str:
        ends = sorted((abs(row["low_of_all"]), abs(row["high_of_all"])))
        interval = " to ".join(map(in_points, ends))
        verb = self.verbs[row["estimate"] < 0]
        size = in_points(abs(row["estimate"]))
        return f"{_quoted(topic)} {verb} by {size} points ({interval}){self.places[row['term']]}"

    @property
    def _basis(self) -> str:
        """What the differences are estimated from, as a sentence after them."""
        estimate = self.estimate
        persons = f" of {estimate.persons:,} persons"
        within = "within clients" if estimate.clients > 1 else "in the documents of one client"
        return (
            f" The comparison is {within}, with 97 % intervals of all comparisons, from "
            f"{estimate.documents:,} documents{persons * (estimate.persons != estimate.documents)}."
        )


def sentences(
    topics: Sequence[Topic],
    model: TopicModel,
    documents: Mapping[str, int],
    change: Change | None,
    estimate: Effects | None,
    kind: str,
) -> list[str]:
    """State the findings: main topics, differences between clients, changes, and groups.

    The chance that any sentence is false is at most 5 %; `OF_DIFFERENCES` and others are its parts.
    """
    lines = [
        _about(topics, sum(documents.values()), kind, counted_units(model)),
        _clients(topics) if len(documents) > 1 else "",
        f"{len(model.repeated)} of {len(topics)} {kind}s have nearly the words of another: there "
        f"may be fewer {kind}s."
        if model.repeated
        else "",
    ]
    questions = [*_of_groups(model, kind)]
    if change is not None:
        questions = [_of_change(change, estimate), *questions]
    else:
        lines.append(_shared(topics, documents, kind))
    n_terms = sum(len(question.places) for question in questions if not question.obstacle)
    level = 1 - OF_DIFFERENCES / max(n_terms, 1)
    by_number = {topic["topic"]: topic for topic in topics}
    return [*filter(None, lines), *(question.answer(by_number, level) for question in questions)]


def _of_change(change: Change, estimate: Effects | None) -> Question:
    estimate = estimate or Effects.refusal(CHANGE, "the chance of differences is not known")
    by_term = dict(zip(estimate.terms, estimate.groups.tolist(), strict=True))
    persons = {
        change["before"]: max(change["persons"], estimate.persons - sum(by_term.values())),
        change["after"]: by_term.get(LATER, 0),
    }
    uneven = max(change["documents"]) > UNEVEN * min(change["documents"])
    return Question(
        about=f"{change['after']} compared with {change['before']}",
        estimate=estimate,
        places={LATER: ""},
        verbs=("grew", "shrank"),
        nothing="nothing changed more than chance",
        obstacle=_obstacle(estimate, persons)
        or f"one has more than {UNEVEN:g} times as many documents as the other" * uneven,
    )


def _obstacle(estimate: Effects, persons: Mapping[str, float]) -> str:
    """Return why groups of so many persons cannot be compared; "" if they can."""
    few = next((group for group, number in persons.items() if number <= FEWEST), "")
    return estimate.refused or (few and f"{few} has documents of at most {FEWEST} persons")


def _of_groups(model: TopicModel, kind: str) -> Iterator[Question]:
    """Yield a question for each column of the study."""
    estimates = {estimate.formula: estimate for estimate in model.estimates}
    for table in model.groups:
        if estimate := estimates.get(f"{table.name} + {CLIENT}"):
            first = first_group(table, estimate)
            persons = dict(zip(table.groups, table.persons.tolist(), strict=True))
            others = {term: persons.get(term, 0) for term in estimate.terms}
            least = {first: persons.get(first, 0), "each other group": max([0, *others.values()])}
            yield Question(
                about=f"By {table.name}",
                estimate=estimate,
                places={
                    term: f" where {table.name} is {term}, compared with {first}"
                    for term, number in others.items()
                    if number > FEWEST
                },
                verbs=("is more frequent", "is less frequent"),
                nothing=f"no {kind} differs more than chance",
                obstacle=_obstacle(estimate, least),
            )


def _quoted(topic: Topic) -> str:
    mark = " (suggested)" if topic["label"] and topic.get("suggested") else ""
    return f"“{topic_name(topic)}”{mark}"


def _about(topics: Sequence[Topic], total: int, kind: str, units: str) -> str:
    first = topics[0]
    among = f"{total:,} {units} have {len(topics)} {kind}s"
    largest = f"the largest is {_quoted(first)}, with {first['share']:.0%}"
    if len(topics) <= FIRST_TOPICS:
        return f"{among}; {largest}."
    most = sum(topic["share"] for topic in topics[:FIRST_TOPICS])
    return f"{among}; {largest}, and the {FIRST_TOPICS} largest have {most:.0%} together."


def _clients(topics: Sequence[Topic]) -> str:
    owners = dict.fromkeys(topic["owner"] for topic in topics if topic["owner"] is not None)
    owned = {client: [t for t in topics if t["owner"] == client] for client in owners}
    most = sorted(owned, key=lambda name: -sum(topic["share"] for topic in owned[name]))
    parts = [f"{client} has nearly all of {_listed(owned[client])}" for client in most[:2]]
    return f"{'; '.join(parts)}." if parts else ""


def _listed(topics: Sequence[Topic]) -> str:
    """Name the first two topics, and the number of others."""
    rest = f" and {len(topics) - 2} more" if len(topics) > 2 else ""
    return (", " if rest else " and ").join(_quoted(topic) for topic in topics[:2]) + rest


def _shared(topics: Sequence[Topic], documents: Mapping[str, int], kind: str) -> str:
    if len(documents) < 2:
        return ""
    common = [t for t in topics if not t["owner"] and None not in t["clients"].values()]
    many = "All" if len(common) == len(topics) else f"{len(common) or 'None'} of"
    verb = "is" if len(common) == 1 else "are"
    return f"{many} {len(topics)} {kind}s {verb} common to all clients."


def scores_of(model: TopicModel) -> list[dict[str, Any]]:
    """Return one row per score: its name, value, meaning and reference."""
    finite = {name: score[np.isfinite(score)] for name, score in model.coherence.items()}
    values = {name: float(np.mean(score)) for name, score in finite.items() if len(score)}
    nearness = model.info.get("nearness")
    values = ({"nearness": nearness["mean"]} if nearness else {}) | values
    values["diversity"] = unique_words(model.topics(10), 10)
    if model.n_topics > 1:
        values["dissimilarity"] = mean_cosine_dissimilarity(model.beta)
    # What a reader has to know of the score.
    notes = {"nearness": nearness_basis(model, nearness)} if nearness else {"npmi": NOT_MEASURED}
    return [
        {"name": name, "value": values[key], "reference": reference}
        | {"meaning": f"{meaning}. {notes[key]}" if key in notes else meaning}
        for key, (name, meaning, reference) in SCORES.items()
        if key in values
    ]
