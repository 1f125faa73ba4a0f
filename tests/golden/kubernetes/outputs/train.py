"""Travels with the job."""

print("up")
