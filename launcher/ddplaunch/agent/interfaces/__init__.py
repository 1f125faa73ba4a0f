"""Predicts which network interfaces NCCL and Gloo will take on this host, and why.

`read` records the facts of a host, `predict` chooses by them alone, and `library` asks the real libraries.
Prediction must not touch the system.
"""
