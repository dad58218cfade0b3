"""The command line. A mistake of the user is one line on stderr and exit code 2."""
