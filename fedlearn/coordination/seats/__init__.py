"""One seat's part of a replica that a crew holds, as pure machines."""
