from fedlearn.coordination.steps.report import StepReport
from fedlearn.server.training.figures import step_metrics
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic


def metrics_of(
    *, loss: float | None = 2.0, volunteers: int = 2, duration_s: float = 0.5, **given: object
) -> StepMetrics:
    report = StepReport(step=7, loss=loss, members=6, volunteers=volunteers, duration_s=duration_s, loss_spread=0.25)
    traffic = StepTraffic(bytes_in=5, bytes_out=3)
    return step_metrics(report, traffic, lambda loss: ("reward", -loss), 10, digest=b"\x01\xff", **given)  # type: ignore[arg-type]


def test_a_line_has_what_the_step_measured_its_traffic_and_its_work() -> None:
    line = metrics_of(elapsed_s=9.0, validation={"accuracy": 0.5})
    assert (line.step, line.loss, line.figures) == (7, 2.0, {"loss_spread": 0.25})
    assert (line.bytes_in, line.bytes_out, line.digest) == (5, 3, "01ff")
    assert (line.shown, line.work, line.work_per_s) == ({"reward": -2.0}, 60, 120.0)
    assert (line.elapsed_s, line.validation) == (9.0, {"accuracy": 0.5})


def test_a_step_without_a_finite_loss_shows_none() -> None:
    assert metrics_of(loss=None).shown == {}


def test_a_step_that_took_no_time_has_a_rate() -> None:
    assert metrics_of(duration_s=0.0).work_per_s > 120.0


def test_a_step_of_others_has_no_rate() -> None:
    assert metrics_of(volunteers=0, duration_s=0.0).work_per_s == 0.0
