"""The transport of bytes: streams over sockets or in memory, and the channel between a stream and a connection."""
