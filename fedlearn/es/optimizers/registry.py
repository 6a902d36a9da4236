"""All optimizers: a new one is a file beside this one, a member of the union and an entry in the table."""

from collections.abc import Mapping

from fedlearn.es.optimizers.adam import Adam
from fedlearn.es.optimizers.sgd import Sgd

AnyOptimizer = Adam | Sgd
"""Every optimizer that an Update may name."""

OPTIMIZERS: Mapping[str, type[AnyOptimizer]] = {"adam": Adam, "sgd": Sgd}
"""The optimizers by the names that configurations use."""
