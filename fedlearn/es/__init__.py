"""Evolution strategies: who perturbs what, how losses become one step, and the replica that takes it."""
