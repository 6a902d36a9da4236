"""Crews: volunteers that hold one replica between them."""
