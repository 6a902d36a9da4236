"""The training text in blocks: one, or several that are used in turn."""

from collections.abc import Iterator, Sequence
from typing import final, overload

from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.kind import DataFolder
from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.tasks.rnn.options import RnnOptions
from fedlearn.text.blocks import cut_blocks

MAX_BLOCK_TOKENS = 2**24
"""The most tokens of one block, which a volunteer holds in memory and receives in one message."""

STEPS_PER_BLOCK = 100
"""Number of steps for each block of a larger text, so that a volunteer receives about a megabyte in that time."""


@final
class TextBlocks(Sequence[Columns]):
    """Blocks that are looked up in the file when they are asked for."""

    def __init__(self, folder: DataFolder, pieces: Sequence[tuple[int, int]], *, interval: int, note: str) -> None:
        self.interval = interval
        """Steps for each block; 0: the first one only."""
        self.note = note
        """Why there are several, where nobody asked for them."""
        self._folder = folder
        self._pieces = pieces

    @overload
    def __getitem__(self, place: int) -> Columns: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Columns]: ...

    def __getitem__(self, place: int | slice) -> Columns | Sequence[Columns]:
        if isinstance(place, slice):
            return [self._block(*piece) for piece in self._pieces[place]]
        return self._block(*self._pieces[place])

    def __iter__(self) -> Iterator[Columns]:
        return (self._block(*piece) for piece in self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def _block(self, start: int, length: int) -> Columns:
        # A view of its own for each: what was read of the file then leaves memory with the block.
        return {"tokens": self._folder.view("train.npy")[start : start + length]}


def text_blocks(folder: DataFolder, dataset: Dataset, options: RnnOptions) -> TextBlocks:
    """The training part as the options want it; without an interval in one block, unless it is too large for one."""
    tokens, interval, note = dataset.train.tokens, options.new_tokens_interval, ""
    if not interval and len(tokens) > MAX_BLOCK_TOKENS:
        interval = STEPS_PER_BLOCK
        note = (
            f"blocks: {len(tokens)} training tokens are more than the {MAX_BLOCK_TOKENS} of one block; volunteers get "
            f"{options.block_tokens} at a time, others every {interval} steps (new_tokens_interval sets another number)"
        )
    pieces = cut_blocks(tokens, options.block_tokens if interval else 0)
    return TextBlocks(folder, pieces, interval=interval, note=note)
