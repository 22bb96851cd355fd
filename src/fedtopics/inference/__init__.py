"""How a trained model finds a document's topics or its cluster; LDA of a client's documents."""

from fedtopics.inference.base import (
    INFERENCES,
    READOUTS,
    Inference,
    Readout,
    Shared,
    Weights,
    find,
    register,
)

__all__ = [
    "INFERENCES", "READOUTS", "Inference", "Readout", "Shared", "Weights", "find", "register",
]  # fmt: skip
