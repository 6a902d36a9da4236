"""The settings of a run by which losses become steps."""

import msgspec

from fedlearn.es.attempts import Attempts
from fedlearn.es.growth import Growth
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.sums.exchange import Exchange
from fedlearn.es.update import DecayTowards

MOST_LOCAL_STEPS = 128
"""The most local steps where lines decide: more of them hardly save time, and cost loss."""


class Strategy(msgspec.Struct, frozen=True):
    """The settings of a run that turn losses into steps; the only state is in the Updates themselves."""

    perturbation: Perturbation
    group_size: int
    population_limit: int
    optimizer: AnyOptimizer
    """The optimizer, whose learning rate is that of a step of `population_limit` members before the schedule; that of
    local steps, where volunteers take some."""
    fitness_shaping: str
    """A key of `SHAPINGS`."""
    exchange: Exchange = "replay"
    weight_decay: float = 0.0
    decay_towards: DecayTowards = "zero"
    schedule: Schedule = Schedule()
    max_population: int = 0
    """The largest value to which `population_limit` may grow with the volunteers' speed; 0 means no growth."""
    population_warmup: int = 0
    """The number of steps over which the population rises to its limit."""
    max_learning_rate: float = 0.0
    """The largest value to which the learning rate may grow with the population; 0 means no growth."""
    local_steps: int = 1
    """Steps that a volunteer takes by itself between two exchanges, each of `population_limit` gradients; 1: each is
    exchanged; 0: as many as make up for slow lines."""
    most_local_steps: int = MOST_LOCAL_STEPS
    """The most of them where lines decide."""
    sum_bits: int = 8
    """Bits of a parameter in a sum of gradients; 0: four where lines are slow, else eight."""
    coarse_local_steps: bool = True
    """Whether sums of local steps may have four bits where lines decide."""
    attempts: Attempts = Attempts()

    @property
    def keeps_start(self) -> bool:
        """Whether replicas keep the first weights, to which steps may go back."""
        return self.decay_towards == "start" or self.attempts.restarts > 0

    @property
    def growth(self) -> Growth:
        """The rule by which population and learning rate grow together."""
        rate = self.optimizer.learning_rate
        return Growth(self.population_limit, max(self.max_learning_rate / rate, 1.0) if rate else 1.0)
