"""A map of one's own documents: each near the topics that it is of, with these topics' labels.

Topics lie as in `figures.positions`, near those with similar words, and are moved apart until the
discs of their documents do not overlap. A document lies in the disc of its largest topic: the more
of that it is, the nearer to the middle, else towards the others that it is of. Its direction is
turned by its own number, so that the map of the same documents is the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.files import write_durably
from fedtopics.harmless import for_html
from fedtopics.model.exports import data_frame
from fedtopics.model.figures import positions
from fedtopics.text.corpus import Corpus

if TYPE_CHECKING:
    from fedtopics.model.topic_model import TopicModel

MOST = 4000  # documents that are shown: of more, some from all over them
WIDTH, HEIGHT, MARGIN = 1000.0, 700.0, 50.0
FILLED = 0.35  # of the map's area, by discs
GOLDEN = (5**0.5 - 1) / 2  # of which multiples are spread evenly
STEPS = 300  # in which discs are moved apart
PULL = 4.0  # of a document's other topics, beside its own number
LETTER, LINE = 8.5, 20.0  # size of a label's letters
LONGEST_LABEL, LONGEST_TEXT = 30, 160  # characters
PLACES = 600  # that are tried for a label
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = (
    ":root{color-scheme:light dark}body{margin:1rem auto;max-width:75rem;padding:0 1rem;"
    "font-family:system-ui,sans-serif}.map{overflow-x:auto}"
)
Numbers = NDArray[np.float64]
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, repr=False)  # its own repr would print documents
class DocumentMap:
    """Where documents lie, and what is said of each. It stays with who has the documents.

    Attributes
    ----------
    documents : int array of shape (n_shown,)
        Rows of the documents that are shown, counted from 0.
    places : float array of shape (n_shown, 2)
        From the upper left, in a map of 1000 by 700.
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
        return data_frame(columns)

    def svg(self, link: str = "") -> str:
        """Return the map as SVG to stand in a page: a circle a document, which says what it is.

        Labels of topics lead to `link` and their number, if there is one, such as "#topic-".
        """
        circles = "".join(map(self._circles, range(len(self.names))))
        labels = "".join(self._labels(link))
        title = f"{len(self.documents):,} documents by their topics"
        return (
            f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="group" aria-label="Map of {title}" '
            'xmlns="http://www.w3.org/2000/svg" style="width:100%;min-width:40rem;height:auto">'
            f"{circles}"
            '<g font-size="15" text-anchor="middle" fill="currentColor" '
            'style="paint-order:stroke;stroke:var(--paper,Canvas);stroke-width:4px;'
            f'stroke-linejoin:round">{labels}</g></svg>'
        )

    def page(self) -> str:
        """Return the map as a page of its own, which asks no host for anything."""
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Map of documents</title><style>{STYLE}</style></head><body>"
            f"<h1>Map of documents</h1><p>{for_html(self.sentence)}</p>"
            f'<div class="map" tabindex="0">{self.svg()}</div></body></html>'
        )

    @property
    def sentence(self) -> str:
        """What the map shows."""
        unknown = f" {self.unknown:,} with nothing that the model knows are not shown."
        return (
            f"{len(self.documents):,} of {self.of:,} documents, each in the disc of its largest "
            "topic: in the middle what is of that topic alone."
            + (unknown if self.unknown else "")
            + (" Labels in italics are suggested." if self.suggested else "")
            + (" Not to be shared: it has beginnings of documents." if self.texts else "")
        )

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, for its owner alone."""
        write_durably(Path(path), self.page().encode())
        return Path(path)

    def _repr_html_(self) -> str:
        return f"<p>{for_html(self.sentence)}</p>{self.svg()}"

    def _circles(self, topic: int) -> str:
        rows = np.flatnonzero(self.topics == topic)
        circles = (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{for_html(self._said(row))}</title>'
            "</circle>"
            for row, (x, y) in zip(rows.tolist(), self.places[rows], strict=True)
        )
        colour = f"hsl({360 * (topic * GOLDEN % 1):.0f} 60% 52%)"
        return (
            f'<g aria-hidden="true" fill="{colour}" fill-opacity="0.6">{"".join(circles)}</g>'
            if len(rows)
            else ""
        )

    def _said(self, row: int) -> str:
        """Return what is said of a document: its number, its topics, its beginning if asked."""
        theta = self.theta[row]
        largest = [topic for topic in np.argsort(-theta, kind="stable")[:3] if theta[topic] >= 0.05]
        shares = ", ".join(f"{self.names[topic]} {theta[topic]:.0%}" for topic in largest)
        text = "" if self.texts is None else f". {self.texts[row]}"
        return f"document {self.documents[row]}: {shares}{text}"

    def _labels(self, link: str) -> Iterator[str]:
        """Yield the labels of topics, those of the most documents first; none on another."""
        topics = self.topics
        sizes = np.bincount(topics, minlength=len(self.names))
        order = [topic for topic in np.argsort(-sizes, kind="stable").tolist() if sizes[topic]]
        centres = [self.places[topics == topic].mean(0) for topic in order]
        texts = [short_label(self.names[topic]) for topic in order]
        for topic, text, place in zip(order, texts, free_places(centres, texts), strict=True):
            if place is None:
                continue
            x, y = place[0], place[1] + LINE / 4
            style = ' font-style="italic"' if topic in self.suggested else ""
            label = f'<text x="{x:.1f}" y="{y:.1f}"{style}>{for_html(text)}</text>'
            yield f'<a href="{link}{topic}">{label}</a>' if link else label


def document_map(
    model: TopicModel, documents: Any, *, with_text: bool = False, most: int = MOST
) -> DocumentMap:
    """Return a map of one's own documents, by a model of any method.

    Leaves the client
        Nothing: it is made where the documents are, and stays with who asks for it.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes
    with_text : bool
        Whether documents say how they begin; such a map is not to be shared.
    most : int
        Of more documents so many are shown, from all over them.

    Raises
    ------
    StudyError
        If `most` is less than 1.
    """
    if most < 1:
        raise StudyError(f"most={most} cannot be used; show one document or more.")
    corpus = Corpus.of(documents)
    rows = np.unique(np.linspace(0, len(corpus) - 1, min(most, len(corpus))).round().astype(int))
    shown = corpus.take(rows)
    found, seen = model.theta_and_seen(shown)
    theta, kept = found[seen].astype(np.float64), rows[seen]
    texts = None
    if with_text:
        every = (text for batch in shown.texts() for text in batch)
        pairs = zip(every, seen.tolist(), strict=True)
        texts = tuple(_cut(" ".join(text.split()), LONGEST_TEXT) for text, there in pairs if there)
    words = map(" ".join, model.topics(3))
    names = tuple(model.labels.get(topic) or each for topic, each in enumerate(words))
    places, unknown = _places(theta, kept, positions(model.beta)), int((~seen).sum())
    return DocumentMap(kept, places, theta, names, model.suggested, len(corpus), unknown, texts)


def _places(theta: Numbers, numbers: NDArray[np.int64], topics: Numbers) -> Numbers:
    """Return where documents lie, shape (n_documents, 2); topics are at these positions."""
    if not len(theta):
        return np.zeros((0, 2))
    main = theta.argmax(1)
    sizes = np.bincount(main, minlength=len(topics)).astype(np.float64)
    radii = np.sqrt(sizes / sizes.sum() * FILLED * WIDTH * HEIGHT / np.pi)
    centres = apart(topics, radii)
    out = np.empty(len(theta))  # from the middle of the disc, by how much is of other topics
    for topic in np.unique(main):
        rows = np.flatnonzero(main == topic)
        order = rows[np.argsort(-theta[rows, topic], kind="stable")]
        out[order] = np.sqrt((np.arange(len(rows)) + 0.5) / len(rows))
    towards = theta @ centres - centres[main]  # the other topics of a document, by their shares
    length = np.linalg.norm(towards, axis=1, keepdims=True)
    towards = np.divide(towards, length, out=np.zeros_like(towards), where=length > 0)
    angle = 2 * np.pi * (numbers * GOLDEN % 1)
    others = 1 - theta.max(1, keepdims=True)
    turned = np.column_stack([np.cos(angle), np.sin(angle)]) + PULL * others * towards
    turned /= np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), 1e-9)
    return np.asarray(centres[main] + (out * radii[main])[:, None] * turned)


def apart(places: Numbers, radii: Numbers) -> Numbers:
    """Return places on the map, near the given ones, where discs of these radii do not overlap.

    They are moved apart pair by pair in small steps, and kept within the map as far as they fit.
    """
    low, high = places.min(0), places.max(0)
    room = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    at = (places - (low + high) / 2) / np.maximum(high - low, 1e-9).max() * room.min()
    at = at * np.array([room[0] / room[1], 1.0]) + np.array([WIDTH, HEIGHT]) / 2
    # What lies in one place has a direction of its own to go.
    angle = 2 * np.pi * (np.arange(len(at)) * GOLDEN % 1)
    at += 1e-3 * np.column_stack([np.cos(angle), np.sin(angle)])
    least = radii[:, None] + radii[None] + MARGIN / 4
    least[:, radii == 0] = least[radii == 0] = 0
    np.fill_diagonal(least, 0)
    within = np.minimum(MARGIN + radii, HEIGHT / 2)[:, None]
    for _ in range(STEPS):
        between = at[:, None] - at[None]
        distance = np.maximum(np.linalg.norm(between, axis=2), 1e-9)
        push = np.maximum(least - distance, 0) / distance / 2
        at += (push[:, :, None] * between).sum(1) * 0.5
        at = np.clip(at, within, np.array([WIDTH, HEIGHT]) - within)
    return np.asarray(at)


def free_places(
    centres: Sequence[Numbers], texts: Sequence[str]
) -> list[tuple[float, float] | None]:
    """Return where each text can stand without another on it, as near as can be to its centre.

    None for a text for which there is no room.
    """
    taken: list[Box] = []
    found: list[tuple[float, float] | None] = []
    number = np.arange(PLACES)
    angle, reach = 2 * np.pi * number * GOLDEN, 2.5 * np.sqrt(number) * LINE / 4
    spiral = np.column_stack([2 * np.cos(angle) * reach, np.sin(angle) * reach])
    for centre, text in zip(centres, texts, strict=True):
        half = len(text) * LETTER / 2
        free = None
        for x, y in (centre + spiral).tolist():
            box = (x - half, y - LINE / 2, x + half, y + LINE / 2)
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= HEIGHT
            if inside and not any(overlap(box, other) for other in taken):
                free = x, y
                taken.append(box)
                break
        found.append(free)
    return found


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes have a part in common."""
    beside = one[2] <= other[0] or other[2] <= one[0]
    return not (beside or one[3] <= other[1] or other[3] <= one[1])


def short_label(name: str) -> str:
    """Return as many of a label's parts as there is room for.

    Examples
    --------
    >>> short_label("Random variable, probability density function, expression")
    'Random variable'
    """
    text, *parts = name.split(", ")
    for part in parts:
        if len(text) + len(part) + 2 > LONGEST_LABEL:
            break
        text = f"{text}, {part}"
    return _cut(text, LONGEST_LABEL)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
