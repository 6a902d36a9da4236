"""Verbs that lend machines."""
