"""The relay's process, between volunteers and their server: it uses sockets and clocks."""
