"""Audits: how far honest volunteers are apart, and what lies below the tolerance do."""
