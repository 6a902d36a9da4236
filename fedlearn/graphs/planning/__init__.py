"""Plans of crews: which machine holds which part of a model."""
