"""Verbs that manage runs."""
