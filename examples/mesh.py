"""The model of `tp.py` on a mesh of ranks, started by torchrun.

torchrun --nproc_per_node=4 examples/mesh.py
torchrun --nproc_per_node=4 examples/mesh.py --shards=2

All ranks hold the whole model and share the rows of each batch. With --shards=2 pairs of ranks are crews, which share
the rows of each batch, and the ranks of a crew hold different rows of the vocabulary. After every step each rank's
digest is that of the server's replica, or of its part: so there is one digest for all. Options are those of `tp.py`.
"""

from tp import main

if __name__ == "__main__":
    main()
