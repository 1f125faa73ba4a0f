"""Commands that run plain and under `ddplaunch run`, and must do the same."""
