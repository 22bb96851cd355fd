"""A map of one's own documents by t-SNE: near each other are those of similar topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.harmless import for_html, visible
from fedtopics.inference.points import Numbers
from fedtopics.model import figure_layout as layout
from fedtopics.model.exports import data_frame, index_at
from fedtopics.model.figures import Figure, environment, positions
from fedtopics.model.finding import Finder
from fedtopics.text.corpus import Corpus

FEWEST_FOR_TSNE, MOST_SHOWN = 10, 1500  # documents: t-SNE of fewer is no use, of more too slow
PERPLEXITY = 30  # neighbours of a document, about
STEPS = 500
WIDTH, HEIGHT = 800, 600
LONGEST_TEXT = 160  # characters
GOLDEN = (5**0.5 - 1) / 2  # of which multiples are spread evenly: hues


@dataclass(frozen=True, repr=False)  # its own repr would print documents
class DocumentMap:
    """Where documents lie, and a description of each. It stays with who has the documents.

    Attributes
    ----------
    documents : int array of shape (n_shown,)
        Rows of the documents that are shown, counted from 0.
    places : float array of shape (n_shown, 2)
        From the upper left, in a map of 800 by 600.
    theta : float array of shape (n_shown, n_topics)
    names : tuple of str
        Of the topics: labels, or three words.
    suggested : frozenset of int
        Topics whose label nobody has confirmed.
    of : int
        Number of all documents.
    unknown : int
        Those of which the model sees nothing, of the ones that were looked at; they are not shown.
    texts : tuple of str, optional
        Beginnings of the documents, if they were asked for.
    """

    documents: NDArray[np.int64]
    places: Numbers
    theta: Numbers
    names: tuple[str, ...]
    suggested: frozenset[int]
    of: int
    unknown: int
    texts: tuple[str, ...] | None = None
    index: Any = None  # of the documents, as `exports.index_at`

    def __repr__(self) -> str:
        return f"DocumentMap({len(self.documents):,} of {self.of:,} documents)"

    @property
    def topics(self) -> NDArray[np.int64]:
        """The largest topic of each document."""
        return np.asarray(self.theta.argmax(1))

    def to_pandas(self) -> Any:
        """Return a DataFrame: Document, its row; x, y; Topic; Name; Probability; Text, if asked."""
        topics = self.topics
        columns = {
            "Document": self.documents,
            "x": self.places[:, 0],
            "y": self.places[:, 1],
            "Topic": topics,
            "Name": [self.names[topic] for topic in topics],
            "Probability": self.theta.max(1),
            **({} if self.texts is None else {"Text": list(self.texts)}),
        }
        return data_frame(columns, self.documents if self.index is None else self.index)

    def svg(self, in_report: bool = False) -> str:
        """Return the map as SVG: a circle a document, with a description.

        In a report, labels of topics link to these.
        """
        made = environment(visible, in_report=in_report)
        return made.get_template("document_map.svg.j2").render(
            width=WIDTH, height=HEIGHT, documents=len(self.documents), topics=[*self._drawn()]
        )

    @property
    def sentence(self) -> str:
        """What the map shows."""
        unknown = f" {self.unknown:,} with nothing that the model knows are not shown."
        return (
            f"{len(self.documents):,} of {self.of:,} documents: near each other are those of "
            "similar topics; a colour is the largest topic."
            + (unknown if self.unknown else "")
            + (" Labels in italics are suggested." if self.suggested else "")
            + (" Not to be shared: it has beginnings of documents." if self.texts else "")
        )

    def figure(self) -> Figure:
        """Return the map with its sentence."""
        content = f'<p>{for_html(self.sentence)}</p><div class="scroll">{self.svg()}</div>'
        return Figure("map of documents", content)

    def save(self, path: str | Path) -> Path:
        """Write the map to a page, for its owner alone."""
        return self.figure().save(path)

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()

    def _drawn(self) -> Iterator[dict[str, Any]]:
        """Yield topics that documents are of, those of most documents first, as they are drawn."""
        topics = self.topics
        sizes = np.bincount(topics, minlength=len(self.names))
        order = [topic for topic in np.argsort(-sizes, kind="stable").tolist() if sizes[topic]]
        middles = [np.median(self.places[topics == topic], 0).tolist() for topic in order]
        texts = [layout.short(self.names[topic]) for topic in order]
        labels = layout.free_places(middles, texts, WIDTH, HEIGHT)
        for topic, text, label in zip(order, texts, labels, strict=True):
            rows = np.flatnonzero(topics == topic).tolist()
            points = [(*self.places[row].round(1).tolist(), self._described(row)) for row in rows]
            yield {"topic": topic, "text": text, "label": label, "points": points} | {
                "hue": round(360 * (topic * GOLDEN % 1)),
                "suggested": topic in self.suggested,
            }

    def _described(self, row: int) -> str:
        """Return a document's number and topics, and its beginning if asked for."""
        theta = self.theta[row]
        largest = [topic for topic in np.argsort(-theta, kind="stable")[:3] if theta[topic] >= 0.05]
        shares = ", ".join(f"{self.names[topic]} {theta[topic]:.0%}" for topic in largest)
        text = "" if self.texts is None else f". {self.texts[row]}"
        return f"document {self.documents[row]}: {shares}{text}"


def document_map(
    model: Finder, documents: Any, *, with_text: bool = False, most: int = MOST_SHOWN
) -> DocumentMap:
    """Return a map of one's own documents, by a model of any method.

    Leaves the client
        Nothing: it is made where the documents are, and stays with who asks for it.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes
    with_text : bool
        Whether descriptions have the documents' beginnings; such a map is not to be shared.
    most : int
        Of more documents so many are shown, from all over them.

    Raises
    ------
    StudyError
        If `most` is less than 1.

    References
    ----------
    van der Maaten and Hinton, Visualizing Data using t-SNE, JMLR 2008.
    """
    if most < 1:
        raise StudyError(f"most={most} cannot be used; show one document or more.")
    corpus = Corpus.of(documents)
    rows = np.unique(np.linspace(0, len(corpus) - 1, min(most, len(corpus))).round().astype(int))
    shown = corpus.take(rows)
    found, seen = model.theta_and_seen(shown)
    theta = found[seen].astype(np.float64)
    texts = None
    if with_text:
        every = (text for batch in shown.texts() for text in batch)
        pairs = zip(every, seen.tolist(), strict=True)
        texts = tuple(" ".join(text.split())[:LONGEST_TEXT] for text, known in pairs if known)
    names = tuple(
        model.labels.get(topic) or " ".join(words) for topic, words in enumerate(model.topics(3))
    )
    places, unknown = _places(theta, model.info.get("seed") or 0), int((~seen).sum())
    kept = rows[seen]
    shown_as = names, model.suggested, len(corpus), unknown, texts, index_at(documents, kept)
    return DocumentMap(kept, places, theta, *shown_as)


def _places(theta: Numbers, seed: int) -> Numbers:
    """Return where documents lie in the map, shape (n_documents, 2)."""
    if not len(theta):
        return np.zeros((0, 2))
    places = positions(theta)
    if len(theta) >= FEWEST_FOR_TSNE and places.any():
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        perplexity = min(PERPLEXITY, len(theta) / 4)
        with threadpool_limits(1):  # sums of several threads differ from run to run
            places = TSNE(
                init="pca", perplexity=perplexity, max_iter=STEPS, random_state=seed
            ).fit_transform(np.sqrt(theta))
    return np.asarray(layout.scaled(places, WIDTH, HEIGHT, 0.92))
