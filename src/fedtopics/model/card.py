"""What a model is, for people: its card in Markdown, and what a notebook shows of it."""

from __future__ import annotations

from fedtopics.extras import VERSION
from fedtopics.files import shortened
from fedtopics.harmless import for_html, for_markdown, visible
from fedtopics.model.labels import shown_label
from fedtopics.model.topics import Topics
from fedtopics.networks import NETWORKS

MASKS = {
    True: "Replies were masked: whoever added saw sums alone",
    False: "Replies were not masked: whoever added saw each one",
}


def card(model: Topics) -> str:
    """Describe a model for people, in Markdown."""
    total = sum(model.documents.values())
    name = model.inference.name
    network = f", network {name}" if name in NETWORKS.names else ""
    told = {
        key: for_markdown(str(model.info.get(key, "?"))) for key in ("method", "rounds", "seed")
    }
    what, counted = "topic", "Documents with a known word"
    if model.shows_clusters:
        what, counted = "cluster", "Documents that are not empty"
    if "privacy" in model.info:
        counted = f"{counted_units(model).capitalize()}, counted with noise"
    rows = model.get_topic_info()
    labelled = any(row["label"] for row in rows)
    lines = [
        "# Clusters of documents" if model.shows_clusters else "# Topic model",
        "",
        *_masks(model),
        *(
            _merged(model)
            or [
                f"- Method: {told['method']}{network}, {told['rounds']} rounds, seed {told['seed']}"
            ]
        ),
        f"- Vocabulary: {len(model.vocabulary)} words, fingerprint "
        f"{shortened(model.vocabulary.fingerprint)}",
        f"- {counted}: {total}",
        *_unclear(model),
        *(
            f"- Coherence {for_markdown(name)} of the {what}s' ten first words: {score.mean():.3f}"
            for name, score in model.coherence.items()
        ),
        *([f"- {sentence}" for sentence in [promise(model)] if sentence]),
        f"- Written by fedtopics {VERSION}. This folder holds words and numbers, no document.",
        "",
        "| client | documents |",
        "| --- | --- |",
        *(f"| {for_markdown(model.called(name))} | {n} |" for name, n in model.documents.items()),
        "",
        f"| {what} | {'label | ' if labelled else ''}share | words |",
        f"| --- | {'--- | ' if labelled else ''}--- | --- |",
        *(
            f"| {row['topic']} | {for_markdown(shown_label(row)) + ' | ' if labelled else ''}"
            f"{row['share']:.1%} | {for_markdown(', '.join(row['words']))} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _masks(model: Topics) -> list[str]:
    masked, clear = model.info.get("masked"), model.info.get("clear")
    if masked not in MASKS:
        return []
    beside = f"; of each client all saw: {for_markdown(', '.join(clear))}" if clear else ""
    return [f"- {MASKS[masked]}{beside}"]


def _merged(model: Topics) -> list[str]:
    """Say which models it is made of, if it was merged."""
    lines = [
        f"  - {for_markdown(', '.join(part['clients']))}: {part['topics']} topics of "
        f"{for_markdown(part['method'])}, model {for_markdown(part['model'])}"
        for part in model.info.get("merged", [])
    ]
    return [f"- {merger(model)}", *lines] if lines else []


def merger(model: Topics) -> str:
    """Say how a model was merged, or nothing."""
    if not (parts := model.info.get("merged")):
        return ""
    return (
        f"Merged from {len(parts)} models that were trained apart, by how similar their "
        f"{sum(part['topics'] for part in parts)} topics are, without a document: each told its "
        "words, and their sums by topic. Topics are found by words alone."
    )


def _unclear(model: Topics) -> list[str]:
    if "unclear" not in model.info:
        return []
    share = sum(model.info["unclear"].values()) / max(sum(model.documents.values()), 1)
    same = model.info.get("same", 0)
    return [
        f"- Documents of which no cluster has half a probability: {share:.1%}",
        *([f"- Clusters that are the same as another one: {same}"] if same else []),
    ]


def promise(model: Topics) -> str:
    """Say what is promised for each document, or nothing."""
    bound = model.info.get("privacy")
    if bound is None:
        return ""
    numbers = f"epsilon {bound['epsilon']:g}, delta {bound['delta']:g}"
    if bound["seeded"]:
        return (
            f"Noise as for {numbers}, which follows from the study's seed: for trying alone, as it "
            "hides nothing from who knows the seed"
        )
    most = bound.get("most_documents")
    whose = f" of a client, of whose documents {most:,} count at most" if most else ""
    return (
        f"Differentially private for each {for_markdown(bound['unit'])}{whose}: {numbers}, of all "
        "that the study released. Settings, words and encoder are public; what these give without "
        "a document is the control in docs/privacy.md"
    )


def counted_units(model: Topics) -> str:
    """Return what a private model counts, and others as well: documents, or authors."""
    return "authors" if model.info.get("privacy", {}).get("unit") == "author" else "documents"


def summary(model: Topics) -> str:
    """Return one line: the method, and how many topics, words and clients there are."""
    method = visible(str(model.info.get("method", "unknown method")))
    sizes = {"topics": model.n_topics, "words": len(model.vocabulary)}
    sizes["clients"] = len(model.documents)
    counts = ", ".join(f"{name}: {n:,}" for name, n in sizes.items())
    return f"TopicModel({method}, {counts})"


def table(model: Topics) -> str:
    """Return the topics as an HTML table: share of all documents, label, ten words; all escaped."""
    head = "".join(f"<th>{name}</th>" for name in ("topic", "label", "share", "words"))
    wraps = 'style="overflow-wrap: anywhere"'  # however long a word is
    body = "".join(
        f"<tr><td>{row['topic']}</td><td {wraps}>{for_html(shown_label(row))}</td>"
        f"<td>{row['share']:.1%}</td><td {wraps}>{for_html(', '.join(row['words']))}</td></tr>"
        for row in model.get_topic_info()
    )
    caption = f"<caption {wraps}>{for_html(summary(model))}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
