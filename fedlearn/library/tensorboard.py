"""A run's metrics for TensorBoard; needs the extra `tensorboard`, which brings no TensorFlow."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from fedlearn.callback import Begun, Callback
from fedlearn.storage.logs.metrics import StepMetrics


@final
class TensorBoard(Callback):
    """A callback that writes events for TensorBoard, by default into `tensorboard` in the run's folder.

    Raises:
        ImportError: tensorboard is missing.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2  # noqa: F401
            from tensorboard.summary.writer import event_file_writer
        except ImportError as error:
            raise ImportError(
                "TensorBoard: expected the package tensorboard, which is not installed; "
                "pip install 'fedlearn[tensorboard]'"
            ) from error
        self._folder = Path(folder) if folder is not None else None
        self._open = event_file_writer.EventFileWriter
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer: Any = None

    def on_begin(self, begun: Begun) -> None:
        folder = self._folder or (begun.folder / "tensorboard" if begun.folder is not None else None)
        if folder is None:
            raise ValueError("folder: expected one, since this run has none of its own, got none")
        self._writer = self._open(str(folder))

    def on_step(self, metrics: StepMetrics) -> None:
        loss = {"loss": metrics.loss} if metrics.loss is not None else {}
        speed = {"work_per_s": metrics.work_per_s, "volunteers": metrics.volunteers, "members": metrics.members}
        self._add(metrics.step + 1, {"train": {**loss, **metrics.shown, **metrics.figures}, "speed": speed})

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        self._add(step, {"validation": figures})
        if sample:
            self._add_text(step, sample)

    def on_end(self, reason: str) -> None:  # noqa: ARG002
        if self._writer is not None:
            self._writer.close()

    def _add(self, step: int, figures: Mapping[str, Mapping[str, float]]) -> None:
        values = [
            self._summary.Value(tag=f"{group}/{name}", simple_value=value)
            for group, named in figures.items()
            for name, value in named.items()
        ]
        self._write(step, self._summary(value=values))

    def _add_text(self, step: int, text: str) -> None:
        plugin = self._metadata_of_text()
        tensor = {"dtype": "DT_STRING", "string_val": [text.encode()], "tensor_shape": {"dim": [{"size": 1}]}}
        self._write(step, self._summary(value=[self._summary.Value(tag="sample", metadata=plugin, tensor=tensor)]))

    def _metadata_of_text(self) -> Any:  # noqa: ANN401 (of tensorboard's, which has no types)
        from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

        return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))

    def _write(self, step: int, summary: Any) -> None:  # noqa: ANN401
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))
