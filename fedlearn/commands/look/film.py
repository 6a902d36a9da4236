"""`fedlearn sample --video`: a film of what a run's policy does."""

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from fedlearn.commands.look.evaluate import replica_at
from fedlearn.commands.output import bars_of
from fedlearn.runs.run import find, lacks_code, needing_task
from fedlearn.tasks.film import Film
from fedlearn.terminal.bars import Bar

ENDINGS = (".mp4", ".gif")


def film_command(options: argparse.Namespace) -> int:
    """`fedlearn sample RUN --video FILE`: draws an episode of the unperturbed policy, and says what it returned."""
    path = Path(options.video)
    if path.suffix not in ENDINGS:
        raise ValueError(f"--video: expected a file that ends in {' or '.join(ENDINGS)}, got {options.video!r}")
    chosen = find(options.runs, options.run, task=options.task)
    if lacks_code(chosen):
        raise needing_task(chosen.folder, chosen.config, "drawing", options.given)
    examiner, bars = chosen.prepared.examiner, bars_of(options)
    replica = replica_at(chosen, options.step, bars)
    film = examiner.film(replica.weights)
    with bars.bar("drawing", "frames") as bar:
        n_frames, total = write_film(path, film, bar)
    name, seconds = chosen.folder.path.name, n_frames / film.fps
    print(f"run {name}, step {replica.step}: return {total:.4g} in {n_frames} frames, {seconds:.3g} s, in {path}")
    return 0


def write_film(path: Path, film: Film, bar: Bar) -> tuple[int, float]:
    """Writes a film; gives the number of its frames and the return of the episode.

    Nothing that was there is lost unless the whole film is written.

    Raises:
        ValueError: a package that writes films is missing.
    """
    n_frames, total = 0, 0.0
    draft = path.with_name(f".{path.stem}.draft{path.suffix}")
    try:
        with _writer(draft, film.fps) as writer:
            for picture in film.frames:
                writer.append_data(picture.pixels)
                n_frames, total = n_frames + 1, picture.total
                bar.reach(n_frames)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return n_frames, total


def _writer(path: Path, fps: float) -> Any:  # noqa: ANN401 (imageio may not be here)
    try:
        get_writer = import_module("imageio").get_writer
        if path.suffix == ".gif":
            return get_writer(path, duration=1000.0 / fps, loop=0)
        return get_writer(path, fps=fps, macro_block_size=2)
    except ImportError as error:
        raise ValueError(
            f"--video: expected the package imageio, which is missing or lacks what writes {path.suffix}; "
            f"pip install 'fedlearn[video]': {error}"
        ) from error
