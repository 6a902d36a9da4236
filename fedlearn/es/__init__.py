"""Evolution strategies: how members are perturbed, how losses become a step, and the replica that takes the step."""
