"""A machine between volunteers and their server: sockets, clocks."""
