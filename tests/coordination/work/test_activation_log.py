"""What is known of how members went through a crew."""

import pytest

from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.wire.messages import Activations

SAID = Activations(5, 64, 8, bytes(8), b"what crossed the cut")
REST = Activations(5, 72, 2, bytes(8), b"what crossed it next")
BARE = Activations(5, 72, 2, bytes(8), b"")


@pytest.mark.parametrize(
    ("sent", "is_whole"),
    [
        (((SAID, REST), (SAID, REST)), True),
        (((SAID, REST), (SAID,)), False),
        (((SAID, REST), ()), False),
        (((), (SAID, REST)), False),
        (((SAID, REST), (SAID, BARE)), False),
        (((SAID, BARE), (SAID, REST)), False),
    ],
)
def test_a_trail_is_whole_where_every_message_at_every_cut_is_there(
    sent: tuple[tuple[Activations, ...], ...], is_whole: bool
) -> None:
    assert ActivationLog((1, 2), 1, "float32", 8, sent).is_whole(10) is is_whole
