"""The command line. What a user can get wrong is one line on stderr and exit code 2."""
