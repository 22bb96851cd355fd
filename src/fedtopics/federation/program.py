"""Make a method's parts for a study: its program, its clients, and the calls to them.

Every engine gets them here, and here differential privacy replaces a method by its private recipe.
"""

from dataclasses import fields, replace
from typing import Any, cast

from fedtopics.errors import StudyError
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import client_names
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.plan import ClientContext, Plan, WarmStart
from fedtopics.methods.core.training import Trainer
from fedtopics.methods.registry import METHODS, PublishedFunction, exchanges_of, find_method
from fedtopics.model.topic_model import TopicModel
from fedtopics.model.topics import Origin, Topics, TrainingInfo
from fedtopics.privacy.client import PrivatePlan
from fedtopics.privacy.recipe import RECIPES, Recipe


def recipe_of(study: Study) -> Recipe | None:
    """Return how the method computes with differential privacy; None in studies without it."""
    return None if study.differential_privacy is None else RECIPES.find(study.method.method_name)


def exchanges(study: Study) -> list[PublishedFunction]:
    return exchanges_of((recipe_of(study) or study.registration).client, study.method)


def plan_of(study: Study, start: WarmStart | None = None) -> Any:
    settings = study.method.read_by(study.text)
    privacy = study.differential_privacy
    recipe = recipe_of(study)
    if privacy is None or recipe is None:
        return Plan(
            settings=settings,
            text=study.text,
            limits=study.vocabulary,
            seed=study.seed,
            start=start,
        )
    return PrivatePlan(
        settings=settings,
        text=study.text,
        limits=study.vocabulary,
        seed=study.seed,
        start=start,
        privacy=privacy.promise,
        budget=recipe.budget(privacy.promise, study.method),
        clients=len(study.clients),
        words=privacy.words,
        nearest_words=privacy.nearest_words,
    )


def in_the_clear(study: Study) -> list[str]:
    """Return the functions whose replies all members see despite secure aggregation."""
    return sorted(exchange.function for exchange in exchanges(study) if exchange.seen_by_all)


def privacy_summary(study: Study, seeded: bool = False) -> TrainingInfo:
    info: TrainingInfo = {} if seeded else {"masked": study.is_secure}
    if info.get("masked"):
        info["clear"] = in_the_clear(study)
    if study.differential_privacy is not None:
        bound: Any = study.differential_privacy.promise.plain | {"seeded": seeded}
        info["privacy"] = bound
    return info


def finished(
    study: Study, start: WarmStart | None, topics: Topics, seeded: bool = False
) -> TopicModel:
    model = TopicModel(**{field.name: getattr(topics, field.name) for field in fields(topics)})
    if start is not None and start.model is not None:
        model = _credited(model, start, start.model)
    model = replace(model, info={**model.info, **privacy_summary(study, seeded)})
    return model.with_client_names(client_names(study.clients, model.documents))


def _credited(model: TopicModel, start: WarmStart, earlier: Topics) -> TopicModel:
    model = replace(model, info={**model.info, "continued": cast("Origin", start.origin)})
    client_names = earlier.client_names.items()
    model = model.with_client_names({n: name for n, name in client_names if n in model.documents})
    # A topic keeps its number; with F-LDA it keeps its id, if training was continued.
    ids_before = earlier.info.get("ids", range(earlier.n_topics))
    ids_after = model.info.get("ids", range(model.n_topics))
    if "ids" in model.info and start.continued is None:
        return model
    labels = {k: n for k, n in earlier.labels.items() if k not in earlier.unconfirmed}
    numbers = {id_: number for number, id_ in enumerate(ids_after)}
    names = {numbers.get(ids_before[number]): name for number, name in labels.items()}
    return model.with_labels({k: name for k, name in names.items() if k is not None})


def program_of(study: Study, start: WarmStart | None = None) -> Trainer:
    """Make the method's program; StudyError if it cannot start from the model."""
    recipe = recipe_of(study)
    method = study.registration
    if start is not None and recipe is None:
        if not method.starts_from_models:
            *first, last = (n for n in METHODS.names if find_method(n).starts_from_models)
            raise StudyError(
                f"The method {method.name!r} cannot start from a model; use "
                f"{', '.join(first)} or {last}."
            )
        start.check_method(method.name)
    return (recipe or method).program(plan_of(study, start))


def client_of(study: Study, site: ClientContext) -> TopicClient[Any]:
    method = study.registration
    if site.growing is not None and not method.takes_new_documents:
        raise StudyError(
            f"The method {method.name!r} needs all documents at once; leave out --follow, or use "
            "flda."
        )
    return (recipe_of(study) or method).client(plan_of(study), site)
