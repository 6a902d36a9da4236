"""The volunteer's side of a run: its conversation with the server, and its work, in slices of a lease or as a stage of
a crew."""
