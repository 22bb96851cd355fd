"""The main findings in three sentences, and the scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.metrics import mean_cosine_dissimilarity, unique_words
from fedtopics.model.figures import Topic, topic_name
from fedtopics.model.over_time import Change, grown
from fedtopics.model.topic_model import TopicModel

NOTABLE = 0.005  # least change of a share that is reported
ALIKE = 0.5  # least similarity of two clients that the findings call alike
FIRST_TOPICS = 5  # largest topics whose joint share is reported
SCORES = {
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


def sentences(
    topics: Sequence[Topic],
    documents: Mapping[str, int],
    similarity: NDArray[np.float64],
    change: Change | None,
    kind: str,
    units: str = "documents",
) -> list[str]:
    """State the findings in three sentences: main topics, differences between clients, changes."""
    lines = [_about(topics, sum(documents.values()), kind, units)]
    if len(documents) > 1:
        lines.append(_clients(topics, documents, similarity, kind))
    if change is not None:
        by_number = {topic["topic"]: topic for topic in topics}
        lines.append(_changed(by_number, change, of_one=change["of"] == 1 < len(documents)))
    else:
        lines.append(_shared(topics, documents, kind))
    return [sentence for sentence in lines if sentence]


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


def _clients(
    topics: Sequence[Topic],
    documents: Mapping[str, int],
    similarity: NDArray[np.float64],
    kind: str,
) -> str:
    names = list(documents)
    pairs = np.triu(similarity + 1, 1)
    one, other = np.unravel_index(pairs.argmax(), pairs.shape)
    is_clear = len(names) > 2 and similarity[one, other] >= ALIKE
    alike = f"{names[one]} and {names[other]} are the most alike" if is_clear else ""
    owned: dict[str, list[Topic]] = {}
    for topic in topics:
        if topic["owner"] is not None:
            owned.setdefault(topic["owner"], []).append(topic)
    if not owned:
        return f"No {kind} belongs to a single client" + (f"; {alike}." if alike else ".")
    most = sorted(owned, key=lambda name: -sum(topic["share"] for topic in owned[name]))
    parts = [f"{client} has nearly all of {_listed(owned[client])}" for client in most[:2]]
    return "; ".join([*parts, *([alike] if alike else [])]) + "."


def _listed(topics: Sequence[Topic]) -> str:
    """Name the first two topics, and the number of others."""
    rest = f" and {len(topics) - 2} more" if len(topics) > 2 else ""
    return (", " if rest else " and ").join(_quoted(topic) for topic in topics[:2]) + rest


def _changed(topics: Mapping[int, Topic], change: Change, of_one: bool) -> str:
    order = grown(change)
    changes = []
    for topic, how, sign in ((order[0], "grew", 1), (order[-1], "shrank", -1)):
        before = change["topics"][topic]["before"]
        after = change["topics"][topic]["after"]
        if sign * (after - before) >= NOTABLE:
            changes.append(f"{_quoted(topics[topic])} {how} most, from {before:.1%} to {after:.1%}")
    when = f"{change['after']} compared with {change['before']}" + (
        ", in the documents of one client" if of_one else ""
    )
    return f"{when}: {'; '.join(changes)}." if changes else f"{when}: nothing changed much."


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
    values["diversity"] = unique_words(model.topics(10), 10)
    if model.n_topics > 1:
        values["dissimilarity"] = mean_cosine_dissimilarity(model.beta)
    return [
        dict(zip(("name", "meaning", "reference"), SCORES[name], strict=True)) | {"value": value}
        for name, value in values.items()
        if name in SCORES
    ]
