"""What finds clusters by what FSTC trained, and what a model keeps of its settings."""

from __future__ import annotations

from fedtopics.inference.clusters import Adapted, AdapterShape, FineTuned, TunedShape
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.networks.trained_encoder import Shapes


def network_of(settings: FSTCSettings) -> type[Adapted]:
    """Return what finds clusters by what these settings train."""
    return FineTuned if settings.fine_tune else Adapted


def shape_of(settings: FSTCSettings, encoder: Shapes) -> AdapterShape:
    """Return what a model keeps of the settings, and of an encoder that was trained."""
    kind = TunedShape if settings.fine_tune else AdapterShape
    kept = settings.model_dump(include=set(kind.model_fields)) | {"temperature": settings.epsilon}
    return kind(**kept, **({"encoder": encoder} if settings.fine_tune else {}))
