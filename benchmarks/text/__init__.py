"""Runs that learn a text: how much they learn for a budget, and how much sooner with more volunteers."""
