"""How long tests wait for what has to come."""

LIMIT_S = 300.0
"""Whatever has not come by then never will, even on a machine that has much else to do."""
