"""The participants of a run: admission, the roster, reputation and credit."""
