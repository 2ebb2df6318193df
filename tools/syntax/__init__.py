"""syntax: what a source file defines, by its grammar."""
