"""What the FSTC experiments leave behind: a page, the numbers, figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments import report
from experiments.fstc import claims
from experiments.fstc import tables as score_tables
from experiments.fstc.claims import ENCODER
from experiments.fstc.figures import write_figures
from experiments.fstc.published import PAPERS_ENCODER
from experiments.fstc.tasks import N_CLIENTS, QUICK_DOCUMENTS, SHORT, Settings
from experiments.report import Found, Table

PACKAGES = ("fedtopics", "sentence-transformers", "torch", "numpy", "scipy", "scikit-learn")
MEANING = f"""\
ACC / NMI in per cent (NMI with the geometric mean), mean and deviation over seeds: best matching of
clusters and labels, on the documents that were clustered. As many clusters as labels. {N_CLIENTS}
clients with equal shares of the shuffled documents, unless said. Embeddings are of
{ENCODER}, which is not trained; the paper trains {PAPERS_ENCODER}.
*FSTC as in the paper* is a variant: besides, texts are not augmented, a tenth of the steps goes by
before the first transport, and the mixture is diagonal and has floors.
FSBERT is k-means of the same embeddings: what is above it is a method's, the rest the encoder's.
*Published*: the paper's table 2. *Seconds* are of training in one process, all clients one after
the other, without embedding texts. *MB*: what leaves one client in all. *Short schedule*: FSTC and
FSCCL have {SHORT["max_rounds"]} rounds of {SHORT["local_steps"]} steps instead of 40 of 100; three
seeds.
"""
QUICK_MEANING = f"""\
A quick run: {QUICK_DOCUMENTS} documents of each set, one seed, and far too few steps for a verdict.

"""


def tables(settings: Settings, found: Found) -> list[Table]:
    """Return the tables of the parts that there are."""
    return score_tables.tables(found)


def sentences(settings: Settings, found: Found) -> Iterator[str]:
    """Say what is best, what reaches the paper, what each step adds, and what is the encoder's."""
    return claims.sentences(found)


def page(settings: Settings, found: Found, content: Mapping[str, Any]) -> str:
    """Return the tables and sentences in Markdown, of what `plain` returned."""
    meaning = (QUICK_MEANING if settings.quick else "") + MEANING
    return report.page("FSTC", meaning, content, tables(settings, found))


def plain(settings: Settings, found: Found) -> dict[str, Any]:
    """Return all of it for JSON, but for the points of the picture."""
    rows = [{key: value for key, value in row.items() if key != "points"} for row in found]
    return report.plain(settings.command, PACKAGES, sentences(settings, found), rows)


def write_results(settings: Settings, found: Found) -> list[Path]:
    """Write fstc.md, fstc.json and the figures of the parts that there are; return their paths."""
    content = plain(settings, found)
    written = report.write(settings.folder, "fstc", page(settings, found, content), content)
    return written + write_figures(settings.folder, found)
