"""A boss before its run begins; tests/acceptance has whole loops."""

import asyncio
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fedlearn.compat.boss import BossMan, Workers  # noqa: E402

X = torch.ones(2, 3)


def boss(*layers: tuple[type[nn.Module], dict[str, object]]) -> BossMan:
    entries = [(kind, arguments, (4, 3)) for kind, arguments in layers]
    return BossMan(Workers(1, "127.0.0.1", 1), [*entries, (nn.Linear, {"in_features": 3, "out_features": 1}, (4, 3))])


def test_backward_wants_the_derivative_by_a_prediction_of_its_own() -> None:
    async def loop() -> None:
        one = boss()
        prediction = await one.forward(X, {})
        prediction.sum().backward()  # type: ignore[no-untyped-call]
        assert prediction.grad is not None
        await one.backward(prediction.grad)
        with pytest.raises(ValueError, match="expected the derivative of a loss by what forward gave"):
            await one.backward(prediction.grad.clone())
        await one.node_mem_clear()
        with pytest.raises(ValueError, match="expected the derivative of a loss by what forward gave"):
            await one.backward(prediction.grad)

    asyncio.run(loop())


def test_a_step_needs_backward_and_a_server() -> None:
    async def loop() -> None:
        one = boss()
        prediction = await one.forward(X, {})
        with pytest.raises(ValueError, match="optim_step: expected rows to learn from"):
            await one.optim_step()
        prediction = await one.forward(X, {})
        prediction.sum().backward()  # type: ignore[no-untyped-call]
        assert prediction.grad is not None
        await one.backward(prediction.grad)
        with pytest.raises(RuntimeError, match="expected a server that waits for them"):
            await one.optim_step()
        with pytest.raises(ValueError, match="optim_step: expected rows to learn from"):
            await one.optim_step()  # a step takes each derivative once

    asyncio.run(loop())


def test_predictions_without_gradients_are_not_kept() -> None:
    async def loop() -> None:
        one = boss()
        with torch.no_grad():
            prediction = await one.forward(X, [])
        assert not prediction.requires_grad

    asyncio.run(loop())


def test_dropout_in_training_is_warned_of_and_left_out() -> None:
    async def loop() -> None:
        one = boss((nn.Dropout, {"p": 0.5}))
        before = await one.forward(X, {})
        with pytest.warns(UserWarning, match="layers are trained as they are in evaluation: Dropout"):
            await one.model_train()
        assert torch.equal(before, await one.forward(X, {}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await one.model_eval()
            await boss().model_train()

    asyncio.run(loop())
