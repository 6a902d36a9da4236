from fedlearn.es.optimizers import OPTIMIZERS
from fedlearn.tasks.limits import PARAMETER_BYTES


def test_memory_has_room_for_every_optimizer_thrice_and_for_an_estimate() -> None:
    for optimizer in OPTIMIZERS.values():
        assert 12 * (1 + len(optimizer(0.1).slots)) + 12 <= PARAMETER_BYTES


def test_a_parameter_takes_what_the_page_says() -> None:
    assert PARAMETER_BYTES == 48
