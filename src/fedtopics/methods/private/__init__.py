"""Topics with a bound for each document, from few sums with noise."""

from fedtopics.inference.clusters import Centres
from fedtopics.inference.lda import VariationalLDA
from fedtopics.methods.private.client import PrivateClient
from fedtopics.methods.private.method import Private
from fedtopics.methods.private.settings import PrivateSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "private", "topics with a bound for each document", PrivateSettings, Private, PrivateClient,
    inferences=(Centres, VariationalLDA),
)  # fmt: skip
