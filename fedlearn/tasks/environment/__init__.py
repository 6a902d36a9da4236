"""Policies for gymnasium environments as tasks; the extra `fedlearn[gym]` brings gymnasium."""

from fedlearn.tasks.environment.task import EnvironmentTask, environment

__all__ = ["EnvironmentTask", "environment"]
