"""One short program for each contender; all do the same work and obey the same three commands."""
