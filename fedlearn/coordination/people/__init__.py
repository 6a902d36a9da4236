"""Who takes part: admission, the roster, reputation and credit."""
