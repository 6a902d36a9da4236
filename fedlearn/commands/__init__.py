"""The command line: verbs and their flags."""
