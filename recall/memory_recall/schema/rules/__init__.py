"""The rules about vectors that the database itself enforces: their definitions, their comparison, and their repair.

A sensitive or deleted row has no vector, a vector belongs to the present text, and what was recorded of a text is
forgotten when it changes. Functions, triggers, constraints and partial indexes enforce this.
"""
