"""A small language model as a graph: what can be cut into shards."""

from fedlearn.graphs.graph import ArraySpec, Call, DtypeName, Form, Graph, Value

TOKENS, WIDTH, SIZE = 12, 4, 10


def language(
    *, size: int = SIZE, reduction: int = 1, weight: str = "head.weight", bias: bool = True, smoothing: float = 0.0
) -> Graph:
    """Tokens to logits to loss; a head of the name of the embedding is tied to it."""
    learned = [ArraySpec("embedding", (size, WIDTH)), ArraySpec("body", (WIDTH, WIDTH))]
    if weight != "embedding":
        learned.append(ArraySpec(weight, (size, WIDTH)))
    if bias:
        learned.append(ArraySpec("head.bias", (size,)))
    values = ((3, 4), (3, 4, WIDTH), (3, 4, WIDTH), (3, 4, size), (TOKENS, size), (TOKENS,))
    calls = [
        Call(("words",), "reshape.default", (Value("tokens"), (3, 4))),
        Call(("rows",), "embedding.default", (Value("embedding"), Value("words"))),
        Call(("hidden",), "linear.default", (Value("rows"), Value("body"), None)),
        Call(("logits",), "linear.default", (Value("hidden"), Value(weight), Value("head.bias") if bias else None)),
        Call(("flat",), "reshape.default", (Value("logits"), (-1, size))),
        Call(("targets",), "reshape.default", (Value("next"), (TOKENS,))),
        Call(
            ("loss",), "cross_entropy_loss.default", (Value("flat"), Value("targets"), None, reduction, -100, smoothing)
        ),
    ]
    dtypes: tuple[DtypeName, ...] = ("int64", "float32", "float32", "float32", "float32", "int64")
    forms = [Form(shape, dtype) for shape, dtype in zip(values, dtypes, strict=True)]
    forms.append(Form((TOKENS,) if reduction == 0 else (), "float32"))
    inputs = (ArraySpec("tokens", (3, 4), "int64"), ArraySpec("next", (3, 4), "int64"))
    return Graph(inputs, tuple(learned), (), (), tuple(calls), ("loss",), (), tuple(forms))
