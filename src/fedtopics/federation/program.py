"""Make a method's parts for a study: its program, its clients, and the calls to them.

Every engine gets them here, and here differential privacy replaces a method by its private recipe.
"""

from typing import Any

from fedtopics.errors import StudyError
from fedtopics.federation.study import Study
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.plan import ClientContext, Plan, WarmStart
from fedtopics.methods.core.training import Trainer
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.privacy.client import PrivatePlan
from fedtopics.privacy.recipe import RECIPES, Recipe


def recipe_of(study: Study) -> Recipe | None:
    """Return how the method computes with differential privacy; None in studies without it."""
    return None if study.differential_privacy is None else RECIPES.find(study.method.method_name)


def plan_of(study: Study, start: WarmStart | None = None) -> Any:
    privacy = study.differential_privacy
    recipe = recipe_of(study)
    plan = Plan(
        settings=study.method.read_by(study.text),
        text=study.text,
        limits=study.vocabulary,
        seed=study.seed,
        start=start,
    )
    return (
        plan
        if privacy is None or recipe is None
        else PrivatePlan(
            **vars(plan),
            privacy=privacy,
            budget=recipe.budget(privacy.promise, study.method),
            clients=len(study.clients),
        )
    )


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
    check_growth(study, site.growing)
    return (recipe_of(study) or study.registration).client(plan_of(study), site)


def check_growth(study: Study, growing: Any) -> None:
    """Raise StudyError if documents arrive during a study whose method needs all at once."""
    if growing is not None and not study.registration.takes_new_documents:
        raise StudyError(
            f"The method {study.method.method_name!r} needs all documents at once; leave out "
            "--follow, or use flda."
        )
