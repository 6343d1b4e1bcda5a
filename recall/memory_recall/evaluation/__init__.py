"""Evaluation: labelled questions, measures, significance, tuning."""
