"""Where bytes travel: streams over sockets or memory, and the channel between one of them and a connection."""
