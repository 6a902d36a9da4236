"""What the pages of board and hub share: guards, quotas, names and connections."""
