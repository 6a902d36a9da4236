"""Files that a run goes on without: they are set aside, never deleted."""

import shutil
from pathlib import Path
from typing import final

from fedlearn.storage.durable import StorageError, make_folder
from fedlearn.system.files import sync_folder


@final
class Aside:
    """A folder `set-aside/<n>` in the run's folder, made when the first file is set aside."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._folder: Path | None = None
        self.names: list[str] = []
        """Names of the files that were set aside, relative to the run's folder."""

    @property
    def folder(self) -> Path:
        """The folder that files are put into; its number follows the highest that is taken."""
        if self._folder is None:
            root = self._run / "set-aside"
            taken = [int(path.name) for path in root.glob("*") if path.name.isdecimal()]
            self._folder = root / str(max(taken, default=0) + 1)
        return self._folder

    def move(self, path: Path) -> None:
        """Moves a file of the run.

        Raises:
            StorageError: the disk refuses.
        """
        self._put(path, is_moved=True)

    def copy(self, path: Path) -> None:
        """Copies a file of the run as it is now.

        Raises:
            StorageError: the disk refuses.
        """
        self._put(path, is_moved=False)

    def _put(self, path: Path, *, is_moved: bool) -> None:
        name = path.relative_to(self._run)
        target = self.folder / name
        try:
            make_folder(target.parent)
            if is_moved:
                path.rename(target)
                sync_folder(path.parent)  # after a power cut the file must not be back among later ones
            else:
                shutil.copy2(path, target)
            sync_folder(target.parent)
        except OSError as error:
            raise StorageError(f"{path}: could not be set aside: {error.strerror}; make room in {self._run}") from error
        self.names.append(str(name))
