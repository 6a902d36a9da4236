from importlib.util import find_spec

collect_ignore = [] if find_spec("gymnasium") else ["environment"]
