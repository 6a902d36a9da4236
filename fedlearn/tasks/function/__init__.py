"""Plain functions of named arrays as tasks; needs numpy alone."""

from fedlearn.tasks.function.task import FunctionTask, function

__all__ = ["FunctionTask", "function"]
