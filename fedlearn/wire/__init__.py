"""The protocol without sockets: messages, their bytes, and a connection that knows which of them are legal when."""
