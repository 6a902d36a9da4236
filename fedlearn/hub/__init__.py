"""Jobs over HTTP: a process that starts a server for each job, and tells devices which job wants them."""
