"""Federated k-means, exact or in one exchange (k-FED)."""

from fedtopics.inference.clusters import Centres
from fedtopics.methods.kmeans.client import KMeansClient
from fedtopics.methods.kmeans.method import KMeans
from fedtopics.methods.kmeans.noisy import NoisyKMeans, NoisyKMeansClient
from fedtopics.methods.kmeans.settings import KMeansSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "kmeans", "k-means", KMeansSettings, KMeans, KMeansClient, shows="clusters",
    inferences=(Centres,),
    noisy=NoisyKMeans, noisy_client=NoisyKMeansClient,
)  # fmt: skip
