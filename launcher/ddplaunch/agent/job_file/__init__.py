"""The job file as plain data: its units, its rules, and the plan that follows from it. Standard library only.

The launcher reads a job file into its model and hands the model's plain data to these modules; a pod that a
Helm chart has made gets the file itself, as JSON, and comes to the same plan and the same problems.
"""
