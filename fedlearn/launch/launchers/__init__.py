"""The launchers, one a module, whose name is the launcher's."""
