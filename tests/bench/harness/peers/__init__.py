"""The peers, each set up at its best: how it is installed and how its processes are started."""
