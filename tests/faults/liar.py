"""A volunteer whose losses are the wrong way round after a number of honest results: liar.py NUMBER [flags of join]"""

import sys

from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.commands.command_line import main
from fedlearn.es.trials import TrialResults

perform, honest_results = VolunteerReplica.perform, int(sys.argv.pop(1))


def perform_falsely(self: VolunteerReplica, compute: object) -> object:
    global honest_results
    result = perform(self, compute)  # type: ignore[arg-type]
    if isinstance(result, TrialResults):
        honest_results -= 1
        if honest_results < 0:
            return TrialResults(2 * result.losses.mean() - result.losses, result.estimate)
    return result


VolunteerReplica.perform = perform_falsely  # type: ignore[method-assign, assignment]
main(["join", *sys.argv[1:]])
