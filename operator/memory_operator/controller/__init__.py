"""The controller: kopf's handlers, the queue, observation, and carrying out what was decided."""
