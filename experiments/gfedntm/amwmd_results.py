"""What the AMWMD experiment leaves behind: a page, the numbers, pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import costs
from experiments.gfedntm.amwmd import PACKAGES, Settings
from experiments.gfedntm.amwmd_claims import (
    BEYOND_SEEDS,
    CONTROLS,
    FEDERATED_TOPICS,
    Scores,
    sentences,
    summary,
    tables,
)
from experiments.gfedntm.amwmd_scores import DRAWS
from experiments.gfedntm.heat_map import draw_heat_map
from experiments.report import QUICK, Table, versions, write
from fedtopics.text.embeddings import EmbeddingSettings

MEANING = f"""\
AMWMD of a client's topics against a model: the Word Mover's Distance of each topic to the model's
closest one; lower is closer. The tables have the mean over the client's ten topics, as the authors'
script does; equation 7 is the sum, ten times that (`amwmd.json` has both). Ten words a topic, as
the model is read. *best other*: the closest other client's model, seed by seed. Controls:
*random*: topics of words drawn as often as they occur, mean of {DRAWS} draws. *10 of others*: so
many topics drawn from all other clients' models, mean of {DRAWS} draws; *all of others*: all of
them. *own, other seed*: the client's own model trained again with another seed, which is as close
as can be expected. A difference is more than seeds differ from {BEYOND_SEEDS:g} standard deviations
between seeds on.
"""


def plain(settings: Settings, scores: Sequence[Scores]) -> dict[str, Any]:
    """Return all of it for JSON."""
    return {
        "command": settings.command,
        "seeds": list(settings.used_seeds),
        "word_vectors": EmbeddingSettings().model,
        "versions": versions(PACKAGES),
        "data_sets": [one.plain() for one in scores],
    }


def page(settings: Settings, scores: Sequence[Scores], content: Mapping[str, Any]) -> str:
    """Return the tables and sentences in Markdown, of what `plain` returned."""
    seeds = ", ".join(map(str, settings.used_seeds))
    used = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    made_with = f"Seeds {seeds}. Word vectors: {EmbeddingSettings().model}. {used}."
    parts = ["# gFedNTM, figure 4", *[QUICK] * settings.quick, f"`{settings.command}`", made_with]
    parts.append(MEANING)
    parts.append(summary(scores).markdown())
    for one in scores:
        counts = ", ".join(f"{client} {n:,}" for client, n in one.documents.items())
        parts += [f"## {one.data_set}", f"Documents: {counts}."]
        parts += [table.markdown() for table in tables(one)]
        if not settings.quick:
            parts.append("\n".join(f"- {sentence}" for sentence in sentences(one)))
    parts.append(took(scores).markdown())
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def took(scores: Sequence[Scores]) -> Table:
    """Return what the trainings took."""
    return costs.table({one.data_set: (len(one.trainings), one.trainings) for one in scores})


def write_results(settings: Settings, scores: Sequence[Scores]) -> list[Path]:
    """Write amwmd.md, amwmd.json and a picture a data set; return their paths."""
    content = plain(settings, scores)
    written = write(settings.folder, "amwmd", page(settings, scores, content), content)
    for one in scores:
        written += draw(settings.folder / f"amwmd-{one.data_set}", one)
    return written


def draw(path: Path, scores: Scores) -> list[Path]:
    """Draw the paper's figure 4, with the controls to the right of it."""
    clients = list(scores.documents)
    groups = (
        ("clients' models", clients),
        ("federated", [f"federated {n}" for n in FEDERATED_TOPICS]),
        ("controls", CONTROLS),
    )
    order = [scores.models.index(name) for _, names in groups for name in names]
    values = scores.values.mean(0)
    values[np.arange(len(clients)), np.arange(len(clients))] = np.nan
    seeds = len(scores.values)
    return draw_heat_map(
        path,
        values[:, order],
        clients,
        groups,
        f"{scores.data_set}: how far each client's own topics (rows) are from a model's (columns)",
        f"AMWMD, mean over topics{f' and {seeds} seeds' if seeds > 1 else ''}",
    )
