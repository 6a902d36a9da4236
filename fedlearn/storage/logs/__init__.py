"""Files to which a run appends a JSON object a line."""
