"""Jobs that must notice nothing while other processes are killed, stopped, cut off, or hostile. See
README.md."""
