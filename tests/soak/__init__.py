"""`make soak`: an hour of faults on a cluster in use, and an observer that shares no code with what it observes."""
