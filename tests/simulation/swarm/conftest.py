from tests.simulation.swarm.stage import stage_of

__all__ = ["stage_of"]
