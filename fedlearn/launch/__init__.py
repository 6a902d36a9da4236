"""Launchers of many volunteers: as processes, as jobs and pods of clusters, as actors of Ray. None needs another."""

from fedlearn.launch.launchers.ray import ray

__all__ = ["ray"]
