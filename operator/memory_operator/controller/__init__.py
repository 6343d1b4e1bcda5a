"""The controller: kopf's handlers, the queue, observation, and the execution of what was decided."""
