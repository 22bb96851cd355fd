"""What the FSTC experiments leave behind: a page, the numbers, figures."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from experiments import claims, costs, report
from experiments.costs import Groups
from experiments.fstc import tables as score_tables
from experiments.fstc.figures import write_figures
from experiments.fstc.methods import DATA_SETS, DIMENSION, SHORT, TITLES, TUNED
from experiments.fstc.parts import N_CLIENTS, PARTS, Task
from experiments.fstc.published import PAPERS_ENCODER
from experiments.fstc.runs import PACKAGES
from experiments.fstc.tables import OLD
from experiments.fstc.tasks import Settings, given
from experiments.report import Rows, Table, select
from fedtopics.federation.study import Study
from fedtopics.text.embeddings import EmbeddingSettings

ENCODER = EmbeddingSettings().model
SHORT_STEPS = SHORT["network"]["local_steps"]
FEW = TUNED["network"]
MEANING = f"""\
ACC / NMI in per cent (NMI with the geometric mean), mean and deviation over seeds: best matching of
clusters and labels, on the documents that were clustered. As many clusters as labels. {N_CLIENTS}
clients with equal shares of the shuffled documents, unless said. Embeddings are of
{ENCODER}, which is not trained, unless said; the paper trains {PAPERS_ENCODER}.
{ENCODER} was trained on questions of Stack Overflow among much else: it has seen such texts.
FSBERT is k-means of the same embeddings: what is above it is a method's, the rest the encoder's.

- *Frozen*: a variant of the paper's method, with its start, steps and losses on an encoder that is
  not trained. FSTC's texts are as they are, unless said (the paper has SCCL's augmentation), the
  first tenth of the steps is on the labels of the start, and variances and width of the mixture
  have lower bounds; FSCCL's views are texts without a fifth of the words.
- *Published*: the paper's table 2. A dash: not run.
- {OLD}: with rows of an earlier state of fedtopics 0.1.0, with the same settings and other draws.
  They name no versions in runs.jsonl; the command trains them again, and a seed comes out
  elsewhere.
- *Seconds of a core* are of training in one process, all clients one after the other, without
  embedding texts. *MB*: what leaves one client in all.
- *Short schedule*: FSTC and FSCCL have {SHORT["max_rounds"]} rounds of {SHORT_STEPS} steps
  instead of 40 of 100; three seeds, or fewer where that is all there is.
- *Squared error*, *cross entropy*: between a network's scores, or their softmax, and pseudo-labels.
- *Typing mistakes*: two letters swapped, one dropped or one doubled, in words that the seed draws;
  such texts are embedded anew.
- *Mann-Whitney*: p by the scores of all seeds; "too few" if so few cannot come below the level.
- *Words left out*: a step sees two views of each text, without a fifth of its words.
- *Word vectors of the same texts*: of {DIMENSION} dimensions, by a singular value decomposition of
  the texts that are clustered, all in one place; *of other texts*: of those of the other files in
  the folder. No language model and no label is in them.
- *Time and memory*, by part: a training that several parts have counts in the first of them; *of*
  is how many there are to be, of the sets that there are; *measured* are those whose row says what
  it cost, with reading, embedding and scoring.
- *Fine-tuned*: two clients, {TUNED["max_rounds"]} rounds of {FEW["local_steps"]} steps of
  {FEW["batch_size"]} texts, the first half on the labels of the start, at the paper's learning
  rates.
"""


def tables(settings: Settings, all_rows: Rows) -> list[Table]:
    """Return the tables of the parts that there are, and what trainings cost."""
    return [*score_tables.tables(all_rows), costs.table(groups(settings, all_rows))]


def sentences(settings: Settings, all_rows: Rows) -> list[str]:
    """Say which claims hold, of a whole run."""
    parts, sets = ({row[key] for row in all_rows} for key in ("part", "data"))
    if settings.quick or not (parts >= {*PARTS} and sets >= {*claims.TEXTS}):
        return []
    return claims.sentences("fstc", claims.FSTC(all_rows))


def page(settings: Settings, all_rows: Rows, content: Mapping[str, Any]) -> str:
    """Return the tables and sentences in Markdown, of what `plain` returned."""
    return report.page("FSTC", MEANING, content, tables(settings, all_rows))


def plain(settings: Settings, all_rows: Rows) -> dict[str, Any]:
    """Return all of it for JSON, but for the points of the picture."""
    rows = [{key: value for key, value in row.items() if key != "points"} for row in all_rows]
    return report.plain(settings.command, PACKAGES, sentences(settings, all_rows), rows)


def write_results(settings: Settings, all_rows: Rows) -> list[Path]:
    """Write fstc.md, fstc.json and the figures of the parts that there are; return their paths."""
    content = plain(settings, all_rows)
    written = report.write(settings.folder, "fstc", page(settings, all_rows, content), content)
    return written + write_figures(settings.folder, all_rows)


# How many trainings the FSTC experiments are, and what those that there are cost


def groups(settings: Settings, all_rows: Rows) -> Groups:
    """Return how many trainings each part is, of the data sets that there are, and their rows.

    FSCCL, which takes five times as long as the others, is apart. A training that is a row of
    several parts counts in the first of them alone. Rows without versions do not count: they are to
    be trained again.
    """
    sets = [data for data in DATA_SETS.values() if select(all_rows, data=data.name)]
    first: dict[tuple[bool, str], str] = {}  # the group of a training, which is pictured or not
    rows: dict[tuple[bool, str], Mapping[str, Any]] = {}
    for part in PARTS:
        complete = [row for row in select(all_rows, part=part) if "versions" in row]
        for task in settings.planned(part, sets, lambda *given: range(given[-1])):
            training = part == "picture", _depends_on(task)
            apart = f", {TITLES[task.name]}" if task.name == "fsccl" else ""
            first.setdefault(training, part + apart)
            for row in select(complete, **task.row):
                rows.setdefault(training, row)
    return {
        group: (
            list(first.values()).count(group),
            [row for training, row in rows.items() if first[training] == group],
        )
        for group in dict.fromkeys(first.values())
    }


def _depends_on(task: Task) -> str:
    """Return what a task's result depends on, but for the texts."""
    method = _method(json.dumps(task.method))
    content = [task.data, task.split, task.seed, task.n_documents, task.damaged, method]
    return json.dumps(content, sort_keys=True)


@cache
def _method(method: str) -> dict[str, Any]:
    return given(Study.make(method={"n_components": 2, **json.loads(method)}))
