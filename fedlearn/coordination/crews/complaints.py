"""What a seat of a crew may say about members of its lease, and what is wrong with anything else."""

from fedlearn.coordination.crews.crew import Crew, SeatHolder, end_of_lease
from fedlearn.coordination.work.way import Work, leg_of, members_of, misfit_of
from fedlearn.wire.messages import Activations, Assignment, Result, Taken


def complaint_of(crew: Crew, holder: SeatHolder, said: Work) -> str:
    """Describes what is wrong with a message of the open lease; empty where nothing is."""
    assignment, stage = crew.assignment, holder.stage
    assert assignment is not None, "work without a lease"
    if expected := _other_than(crew, stage, said):
        return f"seat {stage} of {crew.name}: expected {expected}, got {type(said).__name__}"
    leg = leg_of(crew.way, stage, said)
    # What came straight from the neighbour may be here sooner than word of it.
    is_told = leg == 0 or min(crew.way[leg - 1 : leg + 1]) not in crew.direct
    most = crew.given(leg) if is_told else end_of_lease(assignment)
    if isinstance(said, Result) and crew.is_sum:
        return _complaint_of_sum(crew, stage, said, assignment, most=most if stage == 0 else crew.done[leg])
    if isinstance(said, Taken):
        return _complaint_of_taken(crew, said, leg, most, assignment)
    n_members, size = members_of(said), assignment.group_size
    first = crew.reported if isinstance(said, Result) else crew.done[leg]
    if said.first_member != first or not 0 < n_members <= most - first:
        return (
            f"members of {crew.name}: expected some from {first} to {most - 1}, "
            f"got {n_members} from {said.first_member} on"
        )
    if isinstance(said, Result):
        whole = f"members of {crew.name}: expected losses of whole groups of {size}, got {n_members}"
        return whole if n_members % size else ""
    if crew.cut_of(holder, said) not in crew.direct:
        misfit = misfit_of(said, crew.sizes(stage, said), assignment)
    else:
        misfit = f"expected none here, got {len(said.payload)} bytes" if said.payload else ""
    return misfit and f"activations of {crew.name}: {misfit}"


def _other_than(crew: Crew, stage: int, said: Work) -> str:
    """What a seat may say in place of a message of this kind; empty where it may say that."""
    last = len(crew.plan.stages) - 1
    if not crew.is_sum:
        if stage == last:
            return "losses" if isinstance(said, Activations) else ""
        return "" if isinstance(said, Activations) and not said.backward else "activations"
    match said:
        case Activations(backward=True):
            return "" if stage > 0 else "activations, its sum or Taken"
        case Activations():
            return "" if stage < last else "cotangents or its sum"
        case Taken():
            return "" if stage == 0 else "activations, cotangents or its sum"
    return ""


def _complaint_of_taken(crew: Crew, said: Taken, leg: int, most: int, assignment: Assignment) -> str:
    # Whoever is through with all says a Result.
    most = min(most, (end_of_lease(assignment) if crew.is_sum else crew.reported + assignment.group_size) - 1)
    if crew.done[leg] < said.next_member <= most:
        return ""
    expected = f"a member from {crew.done[leg] + 1} to {most}"
    return f"members of {crew.name}: expected to be through before {expected}, got {said.next_member}"


def _complaint_of_sum(crew: Crew, stage: int, said: Result, assignment: Assignment, *, most: int) -> str:
    """Describes what is wrong with a part's sum, whose seat is through with the members before `most`."""
    assert crew.sums is not None, "sums of a crew that measures losses"
    n_losses = assignment.quota if stage == len(crew.plan.stages) - 1 else 0
    is_end = most == end_of_lease(assignment) and stage not in crew.parts
    if (said.first_member, said.losses.size) != (assignment.first_member, n_losses) or not is_end:
        return (
            f"sum of {crew.name}: expected one of {assignment.quota} members from {assignment.first_member} on, "
            f"with {n_losses} losses, at the end, got one with {said.losses.size} from {said.first_member} on"
        )
    problem = crew.sums.complaint(stage, said.estimate)
    return f"sum of {crew.name}: {problem}" if problem else ""
