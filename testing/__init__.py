"""testing: what tests of your own workflows need."""
