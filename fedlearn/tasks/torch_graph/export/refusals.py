"""Errors that explain to its author why a model or its loss cannot travel as a graph."""

import re
import traceback
from itertools import pairwise
from pathlib import Path

import torch
from torch import fx

from fedlearn.graphs.graph import GraphError

REMEDY = (
    "where each volunteer can hold the whole model, share nothing (--share nothing): volunteers then run the task from "
    "a file of their own"
)
"""The remedy for runs without crews; crews and their plans need a graph, so it does not help them."""

# In the trace of a call, a line of code follows its file and number.
_PLACE = re.compile(r'\s*File "(.+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)
_RANDOM = (
    "rrelu", "rrelu_with_noise", "randint_like", "randperm", "normal", "normal_functional", "uniform", "multinomial",
    "exponential",
)  # fmt: skip
_BY_VALUE = ("_local_scalar_dense", "item", "sym_size", "_assert_scalar", "nonzero", "masked_select", "_unique2")
_BY_VALUE_ERRORS = ("GuardOnDataDependentSymNode", "DynamicOutputShapeException", "DataDependentOutputException")


def chooses_rows() -> GraphError:
    """The error of a model that chooses rows by a mask, raised where it does."""
    where = _last_of_user(traceback.extract_stack())
    return GraphError(
        f"how many rows a mask chooses{where} follows from computed numbers, which a graph cannot say; multiply by the "
        "mask, use torch.where, or give labels that do not count the number -100, which cross_entropy leaves out, or, "
        f"{REMEDY}"
    )


def cannot_be_exported(error: Exception) -> GraphError:
    """The error of a model that `torch.export` did not accept."""
    where = _last_of_user(traceback.extract_tb(error.__traceback__))
    # A function that wants Python's numbers and gets tensors without any names those.
    if type(error).__name__ in _BY_VALUE_ERRORS or "data-dependent" in str(error) or "FakeTensor" in str(error):
        return GraphError(
            f"the model or its loss branches on numbers that it computes, or turns them into Python's{where}; "
            f"a graph is one list of calls: use torch.where, or, {REMEDY}"
        )
    return GraphError(
        f"the model and its loss cannot be exported{where}: {type(error).__name__}: {first_line(str(error))}; "
        f"write that part so that torch.export takes it, or, {REMEDY}"
    )


def outside_the_table(node: fx.Node) -> GraphError:
    """The error of an operator that volunteers do not run."""
    if node.op == "get_attr":
        return GraphError(
            f"the model or its loss has branches or loops of torch's, such as torch.cond{line_of(node)}; "
            f"a graph is one list of calls: use torch.where, or, {REMEDY}"
        )
    name, where = str(node.target), line_of(node)
    short = name.removeprefix("aten.").split(".")[0]
    if short in _RANDOM:
        return GraphError(
            f"{name} draws random numbers{where}, so that members are told apart by luck; "
            f"call model.eval(), draw by torch.rand, randn, rand_like, randn_like or randint, or, {REMEDY}"
        )
    if short in _BY_VALUE:
        return GraphError(
            f"{name}{where}: a shape or a Python number follows from computed numbers, which a graph cannot say; "
            f"use torch.where or a fixed shape, or, {REMEDY}"
        )
    return GraphError(
        f"{name}{where} is not among the operators that volunteers run, which fedlearn/graphs/operators.py names; "
        f"compose it of those, or, {REMEDY}"
    )


def first_line(text: str) -> str:
    """The first line of a message, shortened."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 200 else line[:200] + "..."


def _last_of_user(stack: traceback.StackSummary) -> str:
    frames = [frame for frame in stack if _is_of_user(frame.filename)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""


def line_of(node: fx.Node) -> str:
    """The line of the user's code that makes the call, or else the PyTorch module that makes it."""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    for place, code in reversed(list(pairwise(lines))):
        found = _PLACE.match(place)
        if found and _is_of_user(found[1]):
            return f" ({Path(found[1]).name}:{found[2]}: {code.strip()})"
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return f" (in {modules[-1][0]})" if len(modules) > 1 else ""


def _is_of_user(path: str) -> bool:
    return not path.startswith((_TORCH, str(Path(__file__).parent), "<"))
