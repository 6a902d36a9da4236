"""All optimizers: a new one is a file beside this one, a member of the union and an entry of the table."""

from collections.abc import Mapping

from fedlearn.es.optimizers.adam import Adam
from fedlearn.es.optimizers.sgd import Sgd

AnyOptimizer = Adam | Sgd
"""All that an Update may name."""

OPTIMIZERS: Mapping[str, type[AnyOptimizer]] = {"adam": Adam, "sgd": Sgd}
"""By the names that configurations use."""
