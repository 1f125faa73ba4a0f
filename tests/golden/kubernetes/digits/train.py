"""A script whose content does not matter here."""

print("hello")
