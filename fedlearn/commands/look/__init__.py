"""Verbs that look at runs."""
