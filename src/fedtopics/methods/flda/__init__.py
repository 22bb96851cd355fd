"""F-LDA: topics of each client's own LDA, merged by similarity."""

from fedtopics.inference.lda import VariationalLDA
from fedtopics.methods.flda.client import FLDAClient
from fedtopics.methods.flda.method import FLDA
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "flda", "F-LDA", FLDASettings, FLDA, FLDAClient, starts_from_models=True,
    takes_new_documents=True, inferences=(VariationalLDA,),
)  # fmt: skip
