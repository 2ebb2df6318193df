"""search: ripgrep, and the globs of tools that find files."""
