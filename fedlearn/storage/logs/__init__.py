"""Files to which a run appends one JSON object a line."""
