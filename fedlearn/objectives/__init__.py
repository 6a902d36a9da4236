"""What is optimised: objectives turn weights and text into losses."""

from fedlearn.objectives.base import Objective
from fedlearn.objectives.registry import build_objective

__all__ = ["Objective", "build_objective"]
