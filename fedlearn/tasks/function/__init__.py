"""Plain functions of named arrays as tasks; needs numpy alone."""

from fedlearn.tasks.function.members import ArrayMembers
from fedlearn.tasks.function.task import FunctionTask, function

__all__ = ["ArrayMembers", "FunctionTask", "function"]
