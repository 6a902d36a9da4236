"""Train neural networks by evolution strategies on machines that come and go."""

__version__ = "0.1.0"
