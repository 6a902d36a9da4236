"""Guards, quotas, names and connections, which the pages of board and hub share."""
