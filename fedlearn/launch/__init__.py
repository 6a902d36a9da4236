"""Many volunteers at once: as processes, as jobs and pods of clusters, as actors of Ray. None of them needs another."""

from fedlearn.launch.on_ray import ray

__all__ = ["ray"]
