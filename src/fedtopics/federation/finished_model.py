"""What a finished model contains about its training: origin, privacy, and the data sent for it."""

from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from fedtopics.federation.data_sent import data_sent_in
from fedtopics.federation.study import Study
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.model.topics import Origin, PrivacyGuarantee, Topics, TrainingInfo
from fedtopics.text.rounding import is_example, rounded

SHARE_DIGITS = 3  # of shares of topics in a model
IN_MODELS = "function", "often", "short", "seen"  # of the table of data sent


def privacy_summary(study: Study, seeded: bool = False) -> TrainingInfo:
    info: TrainingInfo = (
        {}
        if seeded
        else {
            "masked": study.is_secure,
            "data_sent": [
                {name: getattr(row, name) for name in IN_MODELS} for row in data_sent_in(study)
            ],
        }
    )
    if study.differential_privacy is not None:
        info["privacy"] = cast(
            "PrivacyGuarantee", study.differential_privacy.promise.plain | {"seeded": seeded}
        )
    return info


def finished(
    study: Study, start: WarmStart | None, topics: Topics, seeded: bool = False
) -> TopicModel:
    model = TopicModel(**{field.name: getattr(topics, field.name) for field in fields(topics)})
    if start is not None and start.model is not None:
        model = _credited(model, start, start.model)
    if not is_example(sum(model.documents.values()), len(model.documents)):
        model = without_exact_counts(model)
    model = replace(model, info={**model.info, **privacy_summary(study, seeded)})
    return model.with_client_names(
        {
            client: data.name
            for client, data in study.clients.items()
            if client in model.documents and data.name
        }
    )


def without_exact_counts(model: TopicModel) -> TopicModel:
    """Return the model with all its numbers of documents and words rounded; see `text.rounding`."""
    info = cast("dict[str, Any]", model.info)
    of_clients = {
        name: {client: rounded(np.array(n)).tolist() for client, n in info[name].items()}
        for name in ("sizes", "unclear")
        if name in info
    }
    return replace(
        model,
        shares={name: np.round(share, SHARE_DIGITS) for name, share in model.shares.items()},
        groups=tuple(table.rounded(SHARE_DIGITS) for table in model.groups),
        estimates=tuple(estimate.rounded() for estimate in model.estimates),
        info=cast("TrainingInfo", info | of_clients),
    )


def _credited(model: TopicModel, start: WarmStart, earlier: Topics) -> TopicModel:
    model = replace(model, info={**model.info, "continued": cast("Origin", start.origin)})
    model = model.with_client_names(
        {client: name for client, name in earlier.client_names.items() if client in model.documents}
    )
    # A topic keeps its number; with F-LDA it keeps its id, if training was continued.
    if "ids" in model.info and start.continued is None:
        return model
    ids_before = earlier.info.get("ids", range(earlier.n_topics))
    numbers = {
        id_: number for number, id_ in enumerate(model.info.get("ids", range(model.n_topics)))
    }
    return model.with_labels(
        {
            numbers[ids_before[number]]: name
            for number, name in earlier.labels.items()
            if number not in earlier.unconfirmed and ids_before[number] in numbers
        }
    )
