"""What differs between Linux, macOS and Windows; nothing else imports what only some of them have."""
