"""The inputs of an exported program, by the names that they have in a graph."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from fedlearn.graphs.graph import GraphError
from fedlearn.tasks.torch_graph.export.capture import MODEL
from fedlearn.tasks.torch_graph.export.refusals import REMEDY

_TENSORS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def given_to(
    program: ExportedProgram, model: nn.Module, rows: Mapping[str, Tensor], learned: Mapping[str, Tensor]
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Names of values by placeholder, and by those names the tensors that are not learned.

    Tied tensors are one value, which has the name under which they are learned, or else the model's first one.

    Raises:
        GraphError: a column has the name of a tensor, or an input of the program is no tensor.
    """
    name_of: dict[int, str] = {}
    for name, tensor in _named_tensors(model):
        if name in rows:
            raise GraphError(f"column {name!r}: expected another name than that of a tensor of the model; rename it")
        name_of.setdefault(id(tensor), name)
    name_of.update((id(tensor), name) for name, tensor in learned.items())
    tensor_of = {f"{MODEL}.{name}": tensor for name, tensor in _named_tensors(model)}
    names = dict(zip(program.graph_signature.user_inputs, rows, strict=True))
    tensors: dict[str, Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            continue
        tensor = _tensor_behind(spec, program, tensor_of)
        name = name_of.get(id(tensor), f"constant.{spec.target}")
        names[spec.arg.name] = name
        if name not in learned:
            tensors[name] = tensor
    return names, tensors


def _tensor_behind(spec: InputSpec, program: ExportedProgram, tensor_of: Mapping[str, Tensor]) -> Tensor:
    tensor = tensor_of.get(str(spec.target), program.constants.get(str(spec.target)))
    if spec.kind not in _TENSORS or not isinstance(tensor, Tensor):
        raise GraphError(f"{spec.target or spec.arg.name}: expected a tensor, got {spec.kind.name}; {REMEDY}")
    return tensor


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
