from collections.abc import Callable
from math import prod

import pytest

import es_core

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812 (as everybody calls it)

from fedlearn.tasks.torch.dropout import PortableDraws, bernoulli, dropout  # noqa: E402

X, EYE = torch.arange(1.0, 13.0).reshape(3, 4), torch.eye(3)[None]


def drawn(*shape: int, p: float) -> Tensor:
    """The zeros and ones that follow from what the processor's generator draws."""
    mask = es_core.dropout_mask(int(torch.randint(2**63 - 1, ())), prod(shape), p)
    found: Tensor = torch.from_numpy(mask != 0).float().view(shape)
    return found


@pytest.fixture(autouse=True)
def _restored() -> object:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        yield


def as_before() -> None:
    torch.manual_seed(5)


def test_ones_come_with_their_probability_from_the_processors_generator() -> None:
    found = bernoulli(torch.empty(200, 300, dtype=torch.float64), 0.3)
    assert found.dtype == torch.float64
    assert set(found.flatten().tolist()) == {0.0, 1.0}
    assert found.mean().item() == pytest.approx(0.3, abs=0.01)
    as_before()
    assert torch.equal(found.float(), drawn(200, 300, p=0.3))
    each = bernoulli(X, torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert each.tolist() == [[0.0, 1.0, 0.0, 1.0]] * 3
    as_before()
    shares = torch.full((20,), 0.5)
    found = bernoulli(shares, shares)
    as_before()
    assert torch.equal(found, (torch.rand(20) < 0.5).float())
    assert bernoulli(torch.empty(10**9, 10**9, device="meta"), 0.5).is_meta


def test_what_stays_is_divided_by_the_probability_of_staying() -> None:
    found = dropout(X, 0.75)
    as_before()
    torch.testing.assert_close(found, X * drawn(3, 4, p=0.25) * 4)
    assert torch.equal(dropout(X, 0.0), X)
    assert not dropout(X, 1.0).any()
    assert torch.equal(dropout(X, 0.75, torch.full((3, 4), 2.0)), 2 * X)
    dtypes = {dtype: dropout(X.to(dtype), 0.5).dtype for dtype in (torch.float64, torch.float16, torch.int64)}
    assert dtypes == {torch.float64: torch.float64, torch.float16: torch.float16, torch.int64: torch.float32}
    meta = dropout(torch.empty(10**9, 10**9, dtype=torch.int64, device="meta"), 0.5)
    assert (meta.is_meta, meta.dtype) == (True, torch.float32)


@pytest.mark.parametrize(
    ("function", "p", "shape"),
    [
        (lambda: F.dropout(X, 0.25), 0.75, (3, 4)),
        (lambda: F.dropout(X.clone(), 0.25, inplace=True), 0.75, (3, 4)),
        (lambda: F.dropout1d(X[:, :, None].expand(3, 4, 2), 0.25)[..., 1], 0.75, (3, 4)),
        (
            lambda: F.scaled_dot_product_attention(X[None] / 9, X[None] / 9, EYE, dropout_p=0.25),
            0.75,
            (1, 3, 3),
        ),
        (lambda: torch.ones(3, 4).bernoulli_(0.25), 0.25, (3, 4)),
        (lambda: torch.native_dropout(X, 0.25, True)[0], 0.75, (3, 4)),
    ],
)
def test_within_the_mode_zeros_fall_where_the_generator_says(
    function: Callable[[], Tensor], p: float, shape: tuple[int, ...]
) -> None:
    with PortableDraws() as draws:
        found = function()
    assert draws.has_drawn
    as_before()
    assert torch.equal(found != 0, drawn(*shape, p=p) != 0)


@pytest.mark.parametrize(
    "function", [lambda shares: torch.bernoulli(shares), lambda shares: torch.ones(3, 4).bernoulli_(shares)]
)
def test_within_the_mode_each_number_has_its_own_probability(function: Callable[[Tensor], Tensor]) -> None:
    shares = torch.arange(12.0).view(3, 4) / 11
    with PortableDraws() as draws:
        found = function(shares)
    assert draws.has_drawn
    as_before()
    assert torch.equal(found, (torch.rand(3, 4) < shares).float())


def test_a_layer_drops_between_its_own_in_the_mode() -> None:
    model = nn.GRU(2, 3, num_layers=2, dropout=0.5)
    as_before()
    with PortableDraws():
        found, _ = model(torch.ones(4, 2))
        again, _ = model(torch.ones(4, 2))
    assert not torch.equal(found, again)
    as_before()
    with PortableDraws():
        assert torch.equal(model(torch.ones(4, 2))[0], found)


def test_gradients_flow_through_what_stays() -> None:
    x = X.clone().requires_grad_()
    with PortableDraws():
        y = F.dropout(x, 0.5)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, (y != 0) * 2.0)
    (gradient,) = torch.autograd.grad(dropout(x, 0.5).sum(), x)
    assert set(gradient.flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p: float) -> None:
    for x in (X, X.to("meta")):
        with pytest.raises(RuntimeError, match=f"dropout: expected a probability from 0 to 1, got {p}"):
            dropout(x, p)


def test_the_mode_says_what_native_dropout_kept() -> None:
    with PortableDraws():
        found, kept = torch.native_dropout(X, 0.5, True)
    assert kept.dtype == torch.bool
    assert torch.equal(kept, found != 0)


def test_draws_of_a_generator_of_ones_own_and_other_draws_are_left_alone() -> None:
    expected = torch.rand(3)
    mine = torch.ones(50).bernoulli_(0.5, generator=torch.Generator().manual_seed(3))
    as_before()
    with PortableDraws() as draws:
        assert torch.equal(torch.rand(3), expected)
        assert torch.equal(torch.ones(50).bernoulli_(0.5, generator=torch.Generator().manual_seed(3)), mine)
        kept, mask = torch.native_dropout(X, 0.5, False)
    assert torch.equal(kept, X)
    assert mask.all()
    assert draws.has_drawn
    with PortableDraws() as draws:
        nn.Dropout(0.5).eval()(X)
    assert not draws.has_drawn


def test_members_within_vmap_draw_the_same() -> None:
    def one(x: Tensor) -> Tensor:
        with PortableDraws():
            return F.dropout(x, 0.5) + dropout(x, 0.5)

    found = torch.vmap(one, randomness="same")(X[None].expand(5, 3, 4))
    assert torch.equal(found[0], found[4])
