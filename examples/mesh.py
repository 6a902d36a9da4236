"""Crews whose seats share a vocabulary, several of them beside each other, started by torchrun.

torchrun --nproc_per_node=4 examples/mesh.py

Two crews of two seats, unless `--shards` says otherwise: the crews try different members of a step, the seats of a crew
hold different rows. After every step each seat's digest is that of its part of the server's replica, or its members do
not count: so there is one digest for all. Options are those of `tp.py`.
"""

import os

from tp import main

from fedlearn.launch.gang import GangRank

if __name__ == "__main__":
    main(shards=max(GangRank.of(os.environ).size // 2, 1))
