"""The controller: watch handlers, work queue, observation, execution of plans, and reports."""
