"""A t-SNE map of one's own documents: documents with similar topics are close together."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import check_number
from fedtopics.escaping import for_html, visible
from fedtopics.inference.vectors import Numbers
from fedtopics.model import figure_layout as layout
from fedtopics.model.exports import data_frame, index_at
from fedtopics.model.figures import LONGEST_TEXT, Figure, figure_templates, positions
from fedtopics.model.finding import TopicFinder
from fedtopics.model.shown_words import CAPTION_WORDS
from fedtopics.text.corpus import Corpus

FEWEST_FOR_TSNE = 10  # documents; t-SNE is useless with fewer
MOST_SHOWN = 1500  # documents; t-SNE is too slow with more
PERPLEXITY = 30  # roughly the number of a document's neighbours
STEPS = 500
WIDTH = 800
HEIGHT = 600
GOLDEN = (5**0.5 - 1) / 2  # its multiples spread hues evenly


@dataclass(frozen=True, repr=False)  # the dataclass's own repr would print documents
class DocumentMap:
    """The places of documents in a map, with a description of each. Keep it with the documents.

    Attributes
    ----------
    documents : int array of shape (n_shown,)
        Row numbers of the documents shown, from 0.
    places : float array of shape (n_shown, 2)
        Pixels from the upper left corner, in a map of 800 by 600.
    theta : float array of shape (n_shown, n_topics)
    names : tuple of str
        Labels of the topics, or three words each.
    suggested : frozenset of int
        Topics whose label nobody has confirmed.
    of : int
        Number of all documents.
    unknown : int
        Number of documents left out because they contain nothing that the model knows.
    texts : tuple of str, optional
        Beginnings of the documents, if requested.
    """

    documents: NDArray[np.int64]
    places: Numbers
    theta: Numbers
    names: tuple[str, ...]
    suggested: frozenset[int]
    of: int
    unknown: int
    texts: tuple[str, ...] | None = None
    index: Any = None  # of the documents, see `exports.index_at`

    def __repr__(self) -> str:
        return f"DocumentMap({len(self.documents):,} of {self.of:,} documents)"

    @property
    def topics(self) -> NDArray[np.int64]:
        """Largest topic of each document."""
        return np.asarray(self.theta.argmax(1))

    def to_pandas(self) -> Any:
        """Return a DataFrame: Document (its row), x, y, Topic, Name, Probability, perhaps Text."""
        topics = self.topics
        return data_frame(
            {
                "Document": self.documents,
                "x": self.places[:, 0],
                "y": self.places[:, 1],
                "Topic": topics,
                "Name": [self.names[topic] for topic in topics],
                "Probability": self.theta.max(1),
                **({} if self.texts is None else {"Text": list(self.texts)}),
            },
            self.documents if self.index is None else self.index,
        )

    def svg(self, in_report: bool = False) -> str:
        """Return the map as SVG; in a report, its labels link to the topics there."""
        return (
            figure_templates(visible, in_report=in_report)
            .get_template("document_map.svg.j2")
            .render(
                width=WIDTH, height=HEIGHT, documents=len(self.documents), topics=[*self._drawn()]
            )
        )

    @property
    def sentence(self) -> str:
        """A caption of the map."""
        return (
            f"{len(self.documents):,} of {self.of:,} documents. Those with similar topics are "
            "close together; the colour shows the largest topic."
            + (
                f" {self.unknown:,} with nothing that the model knows are not shown."
                if self.unknown
                else ""
            )
            + (" Labels in italics are suggested." if self.suggested else "")
            + (" Do not share it: it contains beginnings of documents." if self.texts else "")
        )

    def figure(self) -> Figure:
        """Return the map with its caption."""
        return Figure(
            "map of documents",
            f'<p>{for_html(self.sentence)}</p><div class="scroll">{self.svg()}</div>',
        )

    def save(self, path: str | Path) -> Path:
        """Write the map to an HTML page, for the owner of the documents only."""
        return self.figure().save(path)

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()

    def _drawn(self) -> Iterator[dict[str, Any]]:
        """Yield topics as they are drawn, those with most documents first."""
        topics = self.topics
        sizes = np.bincount(topics, minlength=len(self.names))
        order = [topic for topic in np.argsort(-sizes, kind="stable").tolist() if sizes[topic]]
        middles = [np.median(self.places[topics == topic], 0).tolist() for topic in order]
        texts = [layout.short(self.names[topic]) for topic in order]
        labels = layout.free_places(middles, texts, WIDTH, HEIGHT)
        for topic, text, label in zip(order, texts, labels, strict=True):
            points = [
                (*self.places[row].round(1).tolist(), self._described(row))
                for row in np.flatnonzero(topics == topic).tolist()
            ]
            yield {"topic": topic, "text": text, "label": label, "points": points} | {
                "hue": round(360 * (topic * GOLDEN % 1)),
                "suggested": topic in self.suggested,
            }

    def _described(self, row: int) -> str:
        theta = self.theta[row]
        largest = [topic for topic in np.argsort(-theta, kind="stable")[:3] if theta[topic] >= 0.05]
        shares = ", ".join(f"{self.names[topic]} {theta[topic]:.0%}" for topic in largest)
        text = "" if self.texts is None else f". {self.texts[row]}"
        return f"document {self.documents[row]}: {shares}{text}"


def document_map(
    model: TopicFinder, documents: Any, *, with_text: bool = False, most: int = MOST_SHOWN
) -> DocumentMap:
    """Return a map of one's own documents; works with models of every method.

    Leaves the client
        Nothing: the map is made where the documents are, and stays there.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes
    with_text : bool
        Whether descriptions contain the documents' beginnings; do not share such a map.
    most : int
        Most documents shown; if there are more, this many are taken at even distances.

    Raises
    ------
    StudyError
        If `most` is less than 1.

    References
    ----------
    van der Maaten and Hinton, Visualizing Data using t-SNE, JMLR 2008.
    """
    check_number(most, "most")
    corpus = Corpus.of(documents)
    rows = np.unique(np.linspace(0, len(corpus) - 1, min(most, len(corpus))).round().astype(int))
    _, sampled_theta, seen = model.read(corpus.take(rows))
    theta = sampled_theta[seen].astype(np.float64)
    shown = rows[seen]
    texts = (
        " ".join(text.split())[:LONGEST_TEXT]
        for batch in corpus.take(shown).texts()
        for text in batch
    )
    return DocumentMap(
        documents=shown,
        places=_places(theta, model.info.get("seed") or 0),
        theta=theta,
        names=tuple(
            model.labels.get(topic) or " ".join(words)
            for topic, words in enumerate(model.topics(CAPTION_WORDS))
        ),
        suggested=model.unconfirmed,
        of=len(corpus),
        unknown=int((~seen).sum()),
        texts=tuple(texts) if with_text else None,
        index=index_at(documents, shown),
    )


def _places(theta: Numbers, seed: int) -> Numbers:
    if not len(theta):
        return np.zeros((0, 2))
    places = positions(theta)
    if len(theta) >= FEWEST_FOR_TSNE and places.any():
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # sums of several threads differ from run to run
            places = TSNE(
                init="pca",
                perplexity=min(PERPLEXITY, len(theta) / 4),
                max_iter=STEPS,
                random_state=seed,
            ).fit_transform(np.sqrt(theta))
    return np.asarray(layout.scaled(places, WIDTH, HEIGHT, 0.92))
