"""Networks, their averages and files: names of ``_network`` for tests."""

from nona_sklearn._network import network
from nona_sklearn._network.extractor import (
    LEAST,
    ExtractorEmbedding,
    relevance,
    supervised_components,
)
from nona_sklearn._network.network import NeighborNetwork, from_data, to_data
