"""Runs from outside: how they are created, listed, exported, plotted, replayed and rolled back."""
