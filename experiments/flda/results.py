"""What the F-LDA experiments leave behind: a page, the numbers, a figure, verdicts."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import claims, report
from experiments.flda import words
from experiments.flda.runs import PACKAGES, Settings, local_topics
from experiments.flda.tables import tables
from experiments.report import Rows
from fedtopics.methods.flda.topic_lists import mean_topic
from fedtopics.metrics import cosines

MEANING = """\
Ten topics, three clients, {documents} new documents of each in a round; mean and deviation over
seeds. c_v: coherence of each topic's ten first words in all texts of the set (window of 110).
Diversity: mean cosine dissimilarity of the topics, as vectors of their ten first words' weights.
Words are ranked by weight, as the paper does it; *as shown*, in the way that a model chooses by
itself (relevance). *pooled*: all documents in one place. *alone*: mean over the clients' own
models. *guided*: by the topics of regular LDA of the same documents. *the paper*: its algorithms
word by word, in two readings, as lines of Algorithm 1 are lost: *transitive* merges what a chain of
similar pairs connects and drops the rest; *pairwise* makes a topic of each similar pair and keeps
the rest. *M*: topics after merging, of which a model has the ten largest; *M\\**: those of a
client, and their mean c_v. Bytes and replies: what leaves one client in all; most of it is the end
of a study (shares, words, coherence).

Dealt out by subject: texts are sorted by the largest of ten topics that NMF finds in all of them,
and cut in three, so that a subject is one client's, or two's where the cut is. *subjects*: the
cosine of each subject's ten first words with the most similar topic's; *own subjects*: of those
that one client has nine tenths of, with the topics that this client has; *in M\\**: with its M\\*.

Many rounds: *like the round before* is the cosine of each of the model's topics with the most
similar one of the M before, *at a client* that of the topics that it sends. *regular LDA anew* is
neither guided nor remembered, so that it says how alike rounds are by chance; rounds of the same
documents have no new ones, so that nothing but the method moves topics.

A message has the topics' words and weights as they travel. Core-seconds of a training are without
scoring; a client's are a third of what is not merging, as all three have as many documents.

Pairs of topics with a known answer, and how well a similarity ranks them. A person's labels are of
words alone. *known topics*: 50, of 2,000 words, as two clients count so many words of each; *found
by LDA*: by two clients, where the documents' true shares say which topics are the same. Cosine,
Hellinger (1 less its square) and Jensen-Shannon (1 less it) are of the weights of 30 words, Jaccard
of the ten first words."""
SHARED_WORDS = 12  # in the figure


def sentences(settings: Settings, all_rows: Rows) -> list[str]:
    """Say which claims hold, of a whole run."""
    return [] if settings.quick else claims.sentences("flda", claims.FLDA(all_rows))


def page(settings: Settings, all_rows: Rows, content: Mapping[str, Any]) -> str:
    """Return the tables and sentences in Markdown, of what `plain` returned."""
    documents = " or ".join(f"{settings.a_round(data):,}" for data in settings.data_sets)
    meaning = MEANING.format(documents=documents)
    return report.page("F-LDA", meaning, content, tables(settings, all_rows))


def plain(settings: Settings, all_rows: Rows) -> dict[str, Any]:
    """Return all of it for JSON."""
    return report.plain(settings.command, PACKAGES, sentences(settings, all_rows), all_rows)


def write_results(settings: Settings, all_rows: Rows) -> list[Path]:
    """Write flda.md, topics.md, their JSON and the figure; return their paths."""
    content = plain(settings, all_rows)
    written = report.write(settings.folder, "flda", page(settings, all_rows, content), content)
    topics = words.plain(settings, all_rows)
    written += report.write(
        settings.folder, "topics", words.page(settings, all_rows, topics), topics
    )
    return written + report.draw(
        settings.folder / "flda", "flda", partial(_draw, settings=settings)
    )


def alike_pair(sent: Mapping[str, Any]) -> tuple[tuple[str, dict[str, float]], ...]:
    """Return the two topics of different clients that are most alike, each with its client."""
    names = sorted(sent)
    best: tuple[float, Any] = (-1.0, ())
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            first = sent[one]["topics"]
            second = sent[other]["topics"]
            alike = cosines(first, second)
            if alike.size and alike.max() > best[0]:
                i, j = np.unravel_index(alike.argmax(), alike.shape)
                best = float(alike.max()), ((one, first[i]), (other, second[j]))
    pair: tuple[tuple[str, dict[str, float]], ...] = best[1]
    return pair


def _draw(figure: Any, settings: Settings) -> None:
    """Draw the paper's figures 5, 8 and 9: words that two clients share, before and after."""
    figure.set_size_inches(11, 4.5 * len(settings.data_sets))
    grid = figure.subplots(len(settings.data_sets), 1, squeeze=False)[:, 0]
    for axes, data in zip(grid, settings.data_sets, strict=True):
        pair = alike_pair(local_topics(settings, data))
        merged = mean_topic([topic for _, topic in pair], "zero")
        shared = [word for word in merged if all(word in topic for _, topic in pair)]
        shown = shared[:SHARED_WORDS]
        bars = [*pair, ("merged", merged)]
        for number, (name, topic) in enumerate(bars):
            places = np.arange(len(shown)) + (number - 1) * 0.27
            axes.bar(places, [topic[word] for word in shown], 0.25, label=name)
        axes.set_xticks(np.arange(len(shown)), shown, rotation=30, ha="right")
        axes.set(title=data.name, ylabel="weight in the topic")
        axes.legend()
