from fedlearn.board.prometheus import exposition
from fedlearn.coordination.status import RunStatus


def status_of(run: str = "1", **changes: object) -> RunStatus:
    given = {"state": "running", "step": 3, "steps": 9, "run_left_s": None, "members_per_s": 0.0, "open_step": None}
    return RunStatus(run=run, volunteers=(), **{**given, **changes})  # type: ignore[arg-type]


def lines_of(*statuses: RunStatus, n_viewers: int = 0) -> list[str]:
    return exposition(statuses, n_viewers=n_viewers).splitlines()


def test_each_sample_follows_what_its_name_means() -> None:
    lines = lines_of(status_of(loss=2.5), n_viewers=4)
    assert lines[:3] == [
        "# HELP fedlearn_viewers Streams that the board feeds.",
        "# TYPE fedlearn_viewers gauge",
        "fedlearn_viewers 4",
    ]
    place = lines.index('fedlearn_loss{run="1"} 2.5')
    assert lines[place - 1] == "# TYPE fedlearn_loss gauge"


def test_a_figure_of_zero_is_one_and_an_unknown_one_is_none() -> None:
    lines = lines_of(status_of(loss=0.0), status_of("2"))
    assert 'fedlearn_loss{run="1"} 0.0' in lines
    assert 'fedlearn_members_per_second{run="2"} 0.0' in lines
    assert not any(line.startswith('fedlearn_loss{run="2"}') for line in lines)


def test_figures_of_training_and_of_held_out_data_are_told_apart() -> None:
    lines = lines_of(status_of(shown={"reward": 1.0}, validation={"accuracy": 0.5, "unknown": None}))
    assert lines[-2:] == [
        'fedlearn_figure{run="1",name="reward",source="training"} 1.0',
        'fedlearn_figure{run="1",name="accuracy",source="validation"} 0.5',
    ]


def test_a_steps_figures_come_under_their_own_names() -> None:
    assert 'fedlearn_loss_spread{run="1"} 0.25' in lines_of(status_of(figures={"loss_spread": 0.25}))


def test_what_would_end_a_label_is_escaped() -> None:
    assert 'fedlearn_step{run="a\\"b\\\\c\\nd"} 3' in lines_of(status_of('a"b\\c\nd'))
