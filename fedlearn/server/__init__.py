"""The server's process: it performs a coordinator's effects over sockets and files."""
