from importlib.util import find_spec

NEEDS = {"environment": "gymnasium", "torch": "torch", "torch_graph": "torch"}
"""The package without which a room's tests cannot be imported."""

collect_ignore = [room for room, package in NEEDS.items() if not find_spec(package)]
