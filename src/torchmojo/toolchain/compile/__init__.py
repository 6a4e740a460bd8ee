"""The compiler: where it is, what it is given, and what its messages mean to the user."""
