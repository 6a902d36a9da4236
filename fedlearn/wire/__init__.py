"""The protocol without sockets: messages, their bytes, and a connection that says what may be said when."""
