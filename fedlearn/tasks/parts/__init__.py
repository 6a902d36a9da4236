"""A part of a model, as a seat of a crew holds it: what it computes, and the values that cross its cuts."""
