"""Small networks of families that transformers brings, as their configurations make them, on digits."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

try:
    from torch import Tensor, nn
except ImportError:
    sys.exit("this benchmark needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.more_subjects import digits, subject
from benchmarks.models.subjects import Subject
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.torch.supervised import Rows

Sizes = dict[str, Any]

BLOCKS: Sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 64}
PATCHES: Sizes = {**BLOCKS, "image_size": 32, "patch_size": 8}
WORDS: Sizes = {**BLOCKS, "vocab_size": 17}
STAGES: Sizes = {"hidden_sizes": [16, 32], "depths": [1, 1]}

OF_IMAGES: Mapping[str, Sizes] = {
    "Beit": {**PATCHES, "drop_path_rate": 0.1},
    "ConvNext": {**STAGES, "num_stages": 2, "drop_path_rate": 0.1},
    "DeiT": PATCHES,
    "MobileNetV2": {"image_size": 32, "depth_multiplier": 0.35},
    "MobileViT": {
        "image_size": 32,
        "patch_size": 2,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
    },
    "RegNet": {**STAGES, "embedding_size": 16, "groups_width": 8},
    "Swin": {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [1, 2],
        "num_heads": [2, 4],
        "window_size": 4,
    },
    "ViT": PATCHES,
}
OF_WORDS: Mapping[str, Sizes] = {
    "Albert": {**WORDS, "embedding_size": 16},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 17},
    "Electra": {**WORDS, "embedding_size": 16},
    "Roberta": {**WORDS, "max_position_embeddings": 80},
    "XLNet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 17},
}


def network(family: str, use: str, sizes: Sizes) -> nn.Module:
    """A network of a family for a use, such as DeiT and ImageClassification."""
    import transformers

    config = getattr(transformers, f"{family}Config")(**sizes, num_labels=10)
    made: nn.Module = getattr(transformers, f"{family}For{use}")(config)
    return made


def loss(model: nn.Module, rows: Rows) -> Tensor:
    """The loss that networks of transformers give themselves."""
    found: Tensor = model(rows["x"], labels=rows["y"]).loss
    return found


def images() -> Columns:
    """Digits as images [3, 32, 32], and their labels."""
    columns = digits()
    return {"x": columns["x"].repeat(3, 1).repeat(4, 2).repeat(4, 3), "y": columns["y"]}


def words() -> Columns:
    """Digits as 64 points, each of which is a token, and their labels."""
    columns = digits()
    return {"x": (columns["x"] * 16).astype(np.int64).reshape(-1, 64), "y": columns["y"]}


def of_zoo(family: str) -> Subject:
    """The network of a family, with its data."""
    if family in OF_IMAGES:
        return subject(partial(network, family, "ImageClassification", OF_IMAGES[family]), loss, images())
    return subject(partial(network, family, "SequenceClassification", OF_WORDS[family]), loss, words())


def residual() -> Subject:
    """A ResNet, on digits as they are."""
    sizes = {"embedding_size": 32, "hidden_sizes": [32, 64], "depths": [1, 1], "num_channels": 1, "layer_type": "basic"}
    return subject(partial(network, "ResNet", "ImageClassification", sizes), loss, digits())


def bert() -> Subject:
    """BERT, twice as wide as the others."""
    sizes = {**WORDS, "hidden_size": 64, "intermediate_size": 128}
    return subject(partial(network, "Bert", "SequenceClassification", sizes), loss, words())


ZOO: Mapping[str, Callable[[], Subject]] = {
    "residual": residual,
    "bert": bert,
    **{family: partial(of_zoo, family) for family in (*OF_IMAGES, *OF_WORDS)},
}
