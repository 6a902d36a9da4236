import copy
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def models() -> Any:  # noqa: ANN401 (a module)
    """The module beside this file, which needs torch."""
    spec = spec_from_file_location("models_of_graphs", Path(__file__).with_name("models.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def made() -> dict[str, Any]:
    """The cases that were asked for so far."""
    return {}


@pytest.fixture
def case(request: pytest.FixtureRequest, models: Any, made: dict[str, Any]) -> Any:  # noqa: ANN401 (a `models.Case`)
    """One by name, in evaluation mode and exported, with a model that the test may change."""
    import torch

    from fedlearn.tasks.torch_graph.export.export import export

    if request.param not in made:
        torch.manual_seed(0)
        new = models.CASES[request.param]()
        learned = {name: tensor for name, tensor in new.model.eval().named_parameters() if tensor.requires_grad}
        made[request.param] = new._replace(exported=export(new.model, new.loss, new.rows, learned))
    case = made[request.param]
    return case._replace(model=copy.deepcopy(case.model))
