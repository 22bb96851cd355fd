"""The card of a model in Markdown, and what a notebook shows of the model."""

import math
from collections.abc import Sequence

import numpy as np

from fedtopics.escaping import for_markdown, visible
from fedtopics.files import shortened
from fedtopics.inference.vectors import TINY
from fedtopics.model.figures import figure_templates
from fedtopics.model.nearness import Nearness
from fedtopics.model.topics import Topics
from fedtopics.networks import NETWORKS
from fedtopics.text.embeddings import same_model
from fedtopics.versions import VERSION

FAVOURED = "trained on the same encoder, which favours it"


def card(model: Topics) -> str:
    """Return the card of a model, in Markdown."""
    counted = (
        f"{counted_units(model).capitalize()}, counted with noise"
        if "privacy" in model.info
        else f"Documents {'that are not empty' if model.shows_clusters else 'with a known word'}"
    )
    rows = model.get_topic_info()
    nearness = model.info.get("nearness")  # if the documents of the training had embeddings
    return (
        figure_templates(for_markdown)
        .get_template("card.md.j2")
        .render(
            model=model,
            info=model.info,
            merger=merger(model),
            network=(
                f", network {model.inference.name}"
                if model.inference.name in NETWORKS.names
                else ""
            ),
            fingerprint=shortened(model.vocabulary.fingerprint),
            counted=counted,
            units=counted_units(model),
            total=sum(model.documents.values()),
            promise=promise(model),
            alone=of_one_client(model),
            nearness=nearness,
            basis=nearness_basis(model, nearness) if nearness else "",
            chosen=why_number(model.n_topics, model.info.get("range", ())),
            version=VERSION,
            rows=rows,
            labelled=any(row["label"] for row in rows),
        )
    )


def merger(model: Topics) -> str:
    """Describe how a model was merged; "" if it was not."""
    if not (parts := model.info.get("merged")):
        return ""
    return (
        f"Merged from {len(parts)} separately trained models, by the similarity of their "
        f"{sum(part['topics'] for part in parts)} topics and without documents: each model gave "
        "its words and their sums by topic. Topics are found only by words."
    )


ALONE = 0.8  # share of a topic's documents, from which it is called a client's own
OF_UNIT = {"document": "a document", "person": "a person's documents"}


def odds(epsilon: float, delta: float, unit: str) -> str:
    """Say how much likelier conclusions can be with a document, or a person's documents."""
    factor = float(f"{math.exp(epsilon):.3g}")
    return (
        f"any conclusion is at most {factor:,.8g} times as likely with {OF_UNIT[unit]} as without "
        f"(epsilon {epsilon:.3g}), plus a probability of 1 in {1 / delta:,.0f}"
    )


def promise(model: Topics) -> str:
    """Describe the privacy guarantee for each document; "" if there is none."""
    bound = model.info.get("privacy")
    if bound is None:
        return ""
    numbers = f"epsilon {bound['epsilon']:g}, delta {bound['delta']:g}"
    if bound["seeded"]:
        return (
            f"Noise as for {numbers}, but drawn from the study's seed: only for experiments, "
            "because it hides nothing from anybody who knows the seed"
        )
    most = bound.get("most_documents")
    whose = f" of a client (at most {most:,} documents of each count)" if most else ""
    public = (
        "Settings, words and encoder are public; the control in "
        "docs/concepts/differential-privacy.md shows what they yield alone"
        if "embedding" in model.inference.settings_type.model_fields
        else "Settings and words are public"
    )
    return (
        f"Differentially private for each {for_markdown(bound['unit'])}{whose}: {numbers}, for "
        "everything that the study released; "
        f"{odds(bound['epsilon'], bound['delta'], bound['unit'])}. {public}"
    )


def of_one_client(model: Topics) -> str:
    """Name the topics that one client alone has, or nearly; "" if there are none."""
    names = [*model.documents]
    documents = np.array([model.shares[name] * model.documents[name] for name in names])
    is_alone = documents.max(0, initial=0) >= ALONE * np.maximum(documents.sum(0), TINY)
    if len(names) < 2 or not is_alone.any():
        return ""
    kind = "cluster" if model.shows_clusters else "topic"
    whose = [for_markdown(model.client_name(names[place])) for place in documents.argmax(0)]
    lists = ", ".join(f"{topic} of {whose[topic]}" for topic in np.flatnonzero(is_alone))
    return (
        f"One client alone has at least {ALONE:.0%} of the documents of some {kind}s ({lists}), "
        "so their sums are nearly that client's own"
    )


def nearness_basis(model: Topics, nearness: Nearness) -> str:
    """Say how sure the nearness of a model's topics is, and what it rests on."""
    scored = sum(score is not None for score in nearness["scores"])
    ends = " to ".join(f"{end:.3f}" for end in nearness["interval"])
    is_favoured = model.inference.sees_embedding and same_model(
        model.inference.settings.embedding.model, nearness["encoder"]
    )
    return (
        (f"95% interval {ends}, " if ends else "")
        + f"over {scored} of {model.n_topics} topics, from {nearness['documents']:,} documents "
        f"that are not in the topics' centres, embedded by {nearness['encoder']}"
        + f"; {FAVOURED}"
        * is_favoured
    )


def counted_units(model: Topics) -> str:
    """Return what a model with differential privacy counts: documents or persons."""
    return "persons" if model.info.get("privacy", {}).get("unit") == "person" else "documents"


def why_number(number: int, good: Sequence[int]) -> str:
    """Return a chosen number of topics, and the least and most of those about as `good`, if any."""
    if not good:
        return str(number)
    least, most = good
    others = f"{least} to {most} are" if least < most else "no other number is"
    return f"{number}; {others} about as good"


def summary(model: Topics) -> str:
    """Return one line: the method and the numbers of topics, words and clients."""
    method = visible(str(model.info.get("method", "unknown method")))
    return (
        f"TopicModel({method}, topics: {model.n_topics:,}, words: {len(model.vocabulary):,}, "
        f"clients: {len(model.documents):,})"
    )


def table(model: Topics) -> str:
    """Return the topics as an escaped HTML table: share of all documents, label, ten words."""
    return (
        figure_templates(visible)
        .get_template("topic_table.html.j2")
        .render(rows=model.get_topic_info(), caption=summary(model))
    )
